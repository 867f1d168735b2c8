from typing import Any

from allready.model import FactMissing, Fleet, GpuFacts, RdmaFacts, RdmaPort
from tests.fleets import check, commands, fleet


def efa(num_nodes: int = 2, has_net_plugin: bool | None = False, gpu: Any = None, **changes: Any) -> Fleet:
    made = {"state": "ACTIVE", "physical_state": "LinkUp", "link_layer": "Unspecified", "provider": "efa", **changes}
    ports = tuple(RdmaPort(**{"device": f"rdmap{i}s0", "port": 1, **made}) for i in range(4))
    more = {} if gpu is None else {"gpu": {0: gpu}}
    return fleet(num_nodes, rdma={0: RdmaFacts(ports=ports, has_net_plugin=has_net_plugin)}, **more)


def test_names_the_node_and_its_ports() -> None:
    [hit] = check("NET032", efa()).hits
    assert (hit.culprits.nodes, hit.severity, hit.values["count"]) == ((0,), None, 4)
    assert commands("NET032", hit)[0].startswith("export LD_LIBRARY_PATH=/opt/amazon/ofi-nccl/lib:")


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {
        "the plugin is there": efa(has_net_plugin=True),
        "not known": efa(has_net_plugin=None),
        "one node": efa(num_nodes=1),
        "no GPU": efa(gpu=GpuFacts(gpus=())),
        "InfiniBand": efa(provider="mlx5_core", link_layer="InfiniBand"),
        "ports that are down": efa(state="DOWN"),
    }
    assert not [name for name, made in harmless.items() if check("NET032", made).hits]


def test_healthy_nodes_are_clear() -> None:
    assert check("NET032", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("NET032", fleet(2, rdma={1: FactMissing("no /sys")})).unchecked == {1: "no /sys"}
