from typing import Any

from msgspec.structs import replace

from allready.model import FactMissing, Fleet, NetFacts
from tests.fleets import check, commands, fleet, healthy_node
from tests.rules.gpu.made_up import launched


def job(port: int, num_nodes: int = 2, **changes: Any) -> Fleet:
    net = healthy_node(0, 1).net
    assert isinstance(net, NetFacts)
    wide = replace(net, **{"local_port_range": (1024, 65535), **changes})
    return launched(fleet(num_nodes, net=dict.fromkeys(range(num_nodes), wide)), master_port=port)


def test_names_node_0_and_a_port_outside_of_the_range() -> None:
    [hit] = check("PRT012", job(40000, local_port_range=(32768, 60999))).hits
    assert (hit.culprits.nodes, hit.values["range"]) == ((0,), "32768-60999")
    assert hit.values["other"] == 29500


def test_where_every_port_is_taken_for_it_the_port_can_be_reserved() -> None:
    [hit] = check("PRT012", job(29500)).hits
    assert hit.values["other"] is None
    assert commands("PRT012", hit) == ["sysctl -w net.ipv4.ip_local_reserved_ports=29500"]


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {
        "outside": job(29500, local_port_range=(32768, 60999)),
        "reserved": job(29500, reserved_ports=((8080, 8080), (29400, 29510))),
        "one node": job(40000, num_nodes=1),
        "not told": job(40000, local_port_range=None),
    }
    assert not [name for name, made in harmless.items() if check("PRT012", made).hits]


def test_says_which_node_it_could_not_check() -> None:
    assert check("PRT012", fleet(2, net={0: FactMissing("no netlink")})).unchecked == {0: "no netlink"}
