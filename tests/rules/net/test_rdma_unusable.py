from typing import Any

from msgspec.structs import replace

from allready.model import FactMissing, GpuFacts, RdmaFacts, RdmaPort, Severity
from tests.fleets import check, fleet, healthy_node


def rdma(state: str = "ACTIVE", layer: str = "InfiniBand", **changes: Any) -> RdmaFacts:
    port = RdmaPort(device="mlx5_0", port=1, state=state, physical_state="LinkUp", link_layer=layer)
    return RdmaFacts(ports=(port,), **{"has_library": True, "has_device_files": True, **changes})


def test_names_the_node_and_what_is_missing() -> None:
    [hit] = check("NET025", fleet(2, rdma={0: rdma(), 1: rdma(has_library=False)})).hits
    assert (hit.culprits.nodes, hit.severity, hit.values["lacking"]) == ((1,), Severity.WARNING, "libibverbs.so")
    [hit] = check("NET025", fleet(2, rdma={0: rdma(layer="Ethernet", has_device_files=False), 1: rdma()})).hits
    assert (hit.culprits.nodes, hit.values["lacking"]) == ((0,), "/dev/infiniband/uverbs*")


def test_on_one_node_or_without_gpus_it_is_information() -> None:
    gpu = healthy_node(0, 1).gpu
    assert isinstance(gpu, GpuFacts)
    bare = dict.fromkeys(range(2), rdma(has_device_files=False))
    assert [hit.severity for hit in check("NET025", fleet(1, rdma={0: bare[0]})).hits] == [None]
    none = dict.fromkeys(range(2), replace(gpu, gpus=(), visible=()))
    assert {hit.severity for hit in check("NET025", fleet(2, rdma=bare, gpu=none)).hits} == {None}


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {
        "usable": rdma(),
        "down": rdma(state="DOWN", has_library=False),
        "EFA": rdma(layer="Unspecified", has_library=False),
        "not told": rdma(has_library=None, has_device_files=None),
        "no ports": RdmaFacts(ports=()),
    }
    assert not [name for name, one in harmless.items() if check("NET025", fleet(2, rdma={0: one, 1: one})).hits]


def test_says_which_node_it_could_not_check() -> None:
    assert check("NET025", fleet(1, rdma={0: FactMissing("hidden")})).unchecked == {0: "hidden"}
