from typing import Any

from msgspec.structs import replace

from allready.model import FactMissing, Fleet, GpuFacts, RdmaFacts, RdmaPort, Severity
from tests.fleets import check, commands, fleet

LOCAL = ("0 IB/RoCE v1 fe80:0000:0000:0000:0ac0:ebff:fe00:0001", "1 RoCE v2 fe80:0000:0000:0000:0ac0:ebff:fe00:0001")
IPV4 = ("2 IB/RoCE v1 0000:0000:0000:0000:0000:ffff:0a00:0001", "3 RoCE v2 0000:0000:0000:0000:0000:ffff:0a00:0001")
GLOBAL = ("2 RoCE v2 fd00:0000:0000:0000:0000:0000:0000:0001",)


def port(*gids: str, **changes: Any) -> RdmaPort:
    made = {"device": "mlx5_0", "port": 1, "state": "ACTIVE", "physical_state": "LinkUp", "link_layer": "Ethernet"}
    return RdmaPort(**{**made, "netdev": "ens1f0np0", "gids": gids, **changes})


def found(*ports: RdmaPort, num_nodes: int = 2, **changes: Any) -> Fleet:
    return fleet(num_nodes, rdma={0: RdmaFacts(ports=ports)}, **changes)


def test_names_the_port_and_its_interface() -> None:
    [hit] = check("NET030", found(port(*LOCAL))).hits
    assert (hit.culprits.nodes, hit.severity) == ((0,), Severity.WARNING)
    assert (hit.values["ports"], hit.values["interface"]) == ("mlx5_0/1", "ens1f0np0")
    assert commands("NET030", hit) == [
        "ip -br address show ens1f0np0; show_gids mlx5_0",
        "export NCCL_IB_HCA=^mlx5_0:1",
    ]


def test_beside_a_port_that_can_be_used_or_without_gpus_or_peers_it_is_information() -> None:
    usable = replace(port(*LOCAL, *IPV4), device="mlx5_1")
    infiniband = port(link_layer="InfiniBand", device="mlx5_2")
    none = GpuFacts(gpus=())
    for made in (
        found(port(*LOCAL), usable),
        found(port(*LOCAL), infiniband),
        found(port(*LOCAL), gpu={0: none}),
        found(port(*LOCAL), num_nodes=1),
    ):
        [hit] = check("NET030", made).hits
        assert hit.severity is None


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {
        "an IPv4 address": port(*LOCAL, *IPV4),
        "a global IPv6 address": port(*LOCAL, *GLOBAL),
        "a port that is down": port(*LOCAL, state="DOWN"),
        "InfiniBand": port("0 IB/RoCE v1 fe80:0000:0000:0000:0002:c903:0000:0001", link_layer="InfiniBand"),
        "EFA": port("0 unknown fe80:0000:0000:0000:0002:c903:0000:0001", link_layer="Unspecified", provider="efa"),
        "iWARP": port("0 IB/RoCE v1 0200:0000:0001:0000:0000:0000:0000:0000", provider="irdma"),
        "a table that is not shown": port(),
    }
    assert not [name for name, one in harmless.items() if check("NET030", found(one)).hits]


def test_healthy_nodes_are_clear() -> None:
    assert check("NET030", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("NET030", fleet(2, rdma={1: FactMissing("no /sys")})).unchecked == {1: "no /sys"}
