from typing import Any

from msgspec.structs import replace

from allready.model import FactMissing, GpuFacts, GpuProcess
from tests.fleets import check, fleet, healthy_node

HOLDER = (GpuProcess(pid=77, user="bob", command="python", used_bytes=None),)


def second(**changes: Any) -> GpuFacts:
    healthy = healthy_node(0, 1).gpu
    assert isinstance(healthy, GpuFacts)
    return replace(healthy, gpus=(healthy.gpus[0], replace(healthy.gpus[1], **changes)))


def test_a_prohibited_gpu_is_named() -> None:
    [hit] = check("GPU011", fleet(2, gpu={1: second(compute_mode="prohibited")})).hits
    assert (hit.culprits.nodes, hit.values["gpu"]) == ((1,), 1)


def test_an_exclusive_gpu_that_is_taken_names_its_holder() -> None:
    [hit] = check("GPU011", fleet(1, gpu={0: second(compute_mode="exclusive_process", processes=HOLDER)})).hits
    assert hit.values["holder"] == "pid 77"


def test_an_exclusive_gpu_that_is_free_is_clear() -> None:
    assert check("GPU011", fleet(1, gpu={0: second(compute_mode="exclusive_process")})).state == "clear"


def test_a_prohibited_gpu_that_the_job_does_not_use_is_clear() -> None:
    other = replace(second(compute_mode="prohibited"), visible=(0,), visible_devices="0")
    assert check("GPU011", fleet(1, gpu={0: other})).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("GPU011", fleet(1, gpu={0: FactMissing("no /proc")})).unchecked == {0: "no /proc"}
