from typing import Any

from msgspec.structs import replace

from allready.model import FactMissing, Fleet, NetFacts, Severity
from tests.fleets import check, commands, fleet, healthy_node
from tests.rules.gpu.made_up import launched


def job(low: int, high: int, num_nodes: int = 2, nproc: int = 2, **changes: Any) -> Fleet:
    net = healthy_node(0, 1).net
    assert isinstance(net, NetFacts)
    few = replace(net, local_port_range=(low, high), **changes)
    return launched(fleet(num_nodes, net={0: few}), nproc_per_node=nproc)


def test_names_the_node_its_ports_and_what_is_needed() -> None:
    [hit] = check("PRT014", job(40000, 40032)).hits
    assert (hit.culprits.nodes, hit.severity) == ((0,), None)
    assert (hit.values["count"], hit.values["range"], hit.values["needed"]) == (33, "40000-40032", 64)
    assert commands("PRT014", hit)[0] == 'sudo sysctl -w net.ipv4.ip_local_port_range="32768 60999"'


def test_reserved_ports_are_not_given_away() -> None:
    [hit] = check("PRT014", job(40000, 40999, reserved_ports=((39000, 40979), (40990, 50000)))).hits
    assert hit.values["count"] == 10


def test_for_one_node_it_is_information() -> None:
    [hit] = check("PRT014", job(40000, 40032, num_nodes=1)).hits
    assert hit.severity is Severity.INFO


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {
        "as by default": job(32768, 60999, nproc=16),
        "confined for a firewall": job(50000, 50999, nproc=16),
        "a small job in a small range": job(50000, 50099, nproc=4),
        "reserved elsewhere": job(50000, 50999, nproc=16, reserved_ports=((8000, 9000),)),
        "not told": launched(fleet(1, net={0: replace(healthy_node(0, 1).net, local_port_range=None)})),
    }
    assert not [name for name, made in harmless.items() if check("PRT014", made).hits]


def test_healthy_nodes_are_clear() -> None:
    assert check("PRT014", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("PRT014", fleet(2, net={0: FactMissing("no netlink")})).unchecked == {0: "no netlink"}
