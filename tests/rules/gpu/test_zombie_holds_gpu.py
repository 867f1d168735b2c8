from typing import Any

from msgspec.structs import replace

from allready.model import FactMissing, GpuFacts, GpuProcess, HostFacts
from tests.fleets import GIB, check, fleet, healthy_node
from tests.rules.gpu.made_up import gpus


def held(**changes: Any) -> GpuFacts:
    process = GpuProcess(pid=77, user="a", command="[python]", used_bytes=3 * GIB, is_zombie=True)
    facts = gpus()
    return replace(facts, gpus=(facts.gpus[0], replace(facts.gpus[1], processes=(replace(process, **changes),))))


def test_names_the_gpu_and_the_process() -> None:
    [hit] = check("GPU020", fleet(2, gpu={1: held()})).hits
    assert hit.culprits.nodes == (1,)
    assert (hit.values["gpus"], hit.values["processes"], hit.values["pids"]) == ("1", "pid 77 [python]", "77")


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    assert check("GPU020", fleet(2, gpu={0: held(is_zombie=False)})).state == "clear"
    host = healthy_node(0, 1).host
    assert isinstance(host, HostFacts)
    inside = replace(host, container="docker")  # the pid is one of the host, and here it is another process
    assert check("GPU020", fleet(1, gpu={0: held()}, host={0: inside})).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("GPU020", fleet(1, gpu={0: FactMissing("no NVML")})).unchecked == {0: "no NVML"}


def test_healthy_nodes_are_clear() -> None:
    assert check("GPU020", fleet(3)).state == "clear"
