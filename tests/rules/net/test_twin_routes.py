from typing import Any

from msgspec.structs import replace

from allready.model import FactMissing, NetFacts, RdmaFacts, Route, RoutingRule, Severity
from tests.fleets import check, fleet, healthy_node


def net(*routes: Route, **changes: Any) -> NetFacts:
    healthy = healthy_node(0, 2).net
    assert isinstance(healthy, NetFacts)
    second = replace(healthy.interfaces[1], **{"name": "eth1", "addresses": ("10.0.0.101/24",), **changes})
    return replace(healthy, interfaces=(*healthy.interfaces, second), routes=(*healthy.routes, *routes))


TWIN = Route(destination="10.0.0.0/24", interface="eth1")
NONE = RdmaFacts(ports=())
NO_RDMA = {0: NONE, 1: NONE}


def test_two_interfaces_in_one_network_are_named() -> None:
    [hit] = check("NET020", fleet(2, net={0: net(TWIN)}, rdma=NO_RDMA)).hits
    assert (hit.culprits.nodes, hit.severity, hit.values["interfaces"]) == ((0,), Severity.WARNING, "eth0, eth1")


def test_for_one_node_or_beside_active_rdma_it_is_information() -> None:
    [hit] = check("NET020", fleet(1, net={0: net(TWIN)}, rdma={0: NONE})).hits
    assert hit.severity is None
    [hit] = check("NET020", fleet(2, net={0: net(TWIN)})).hits
    assert hit.severity is None


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {
        "another metric": net(replace(TWIN, metric=100)),
        "another network": net(replace(TWIN, destination="10.0.1.0/24")),
        "a bridge of containers": net(TWIN, kind="bridge"),
        "an interface that is down": net(TWIN, is_up=False),
        "the same interface twice": net(replace(TWIN, interface="eth0")),
    }
    by_address = [RoutingRule(text="", source=f"10.0.0.{n}/32") for n in (1, 101)]
    harmless["a table for each address"] = replace(net(TWIN), routing_rules=tuple(by_address))
    harmless["a table for the second address"] = replace(net(TWIN), routing_rules=tuple(by_address[1:]))
    for name, facts in harmless.items():
        assert check("NET020", fleet(2, net={0: facts}, rdma=NO_RDMA)).state == "clear", name


def test_rules_of_policy_routing_for_other_packets_change_nothing() -> None:
    others = (
        RoutingRule(text="", source="10.9.0.0/16"),
        RoutingRule(text="", source="10.0.0.0/24", is_marked=True),
        RoutingRule(text=""),
    )
    assert check("NET020", fleet(2, net={0: replace(net(TWIN), routing_rules=others)}, rdma=NO_RDMA)).hits


def test_is_clear_on_healthy_nodes() -> None:
    assert check("NET020", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("NET020", fleet(1, net={0: FactMissing("no /proc")})).unchecked == {0: "no /proc"}
