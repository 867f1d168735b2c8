from typing import Any

from msgspec.structs import replace

from allready.model import FactMissing, Fleet, GpuFacts, HostFacts
from tests.fleets import check, fleet, healthy_node


def hgx(container: str | None = None, fabric_state: str | None = "not_supported", **changes: Any) -> Fleet:
    healthy = healthy_node(1, 2)
    assert isinstance(healthy.gpu, GpuFacts)
    assert isinstance(healthy.host, HostFacts)
    gpus = tuple(replace(gpu, fabric_state=fabric_state) for gpu in healthy.gpu.gpus)
    made = {"gpus": gpus, "num_switches": 6, "has_fabric_manager": False, **changes}
    return fleet(2, gpu={1: replace(healthy.gpu, **made)}, host={1: replace(healthy.host, container=container)})


def test_names_the_node_and_its_switches() -> None:
    [hit] = check("GPU024", hgx()).hits
    assert (hit.culprits.nodes, hit.values["count"]) == ((1,), 6)


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {
        "it runs": hgx(has_fabric_manager=True),
        "the fabric is ready, whoever manages it": hgx(fabric_state="completed"),
        "no switches": hgx(num_switches=0, has_fabric_manager=None),
        "a container does not see it": hgx(container="docker"),
    }
    assert not [name for name, made in harmless.items() if check("GPU024", made).hits]


def test_healthy_nodes_are_clear() -> None:
    assert check("GPU024", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("GPU024", fleet(2, gpu={1: FactMissing("no NVML")})).unchecked == {1: "no NVML"}
