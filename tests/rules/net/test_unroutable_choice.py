from msgspec.structs import replace

from allready.model import Confidence, FactMissing, NetFacts, Route, RoutingRule
from tests.fleets import check, commands, fleet, healthy_reach
from tests.rules.net.made import NO_ROUTE, SILENT, choosing, choosing_both, interface, net_of, plus

STORAGE = interface("eth9", "192.168.99.2/24")


def storage_chosen(outcome: dict[str, object], **changes: object):  # type: ignore[no-untyped-def]
    probes = {(a, 1): {**outcome, "address": "192.168.99.2", "interface": "eth9"} for a in (0, 2)}
    return fleet(
        3,
        net={1: plus(1, STORAGE)},
        transport={1: choosing_both(1, "eth9", "192.168.99.2", "eth9")},
        reach=healthy_reach(3, probes),
        **changes,
    )


def test_names_the_node_that_chose_a_network_of_its_own() -> None:
    hits = check("NET013", storage_chosen(SILENT)).hits
    assert [(h.culprits.nodes, h.culprits.variables) for h in hits] == [
        ((1,), ("NCCL_SOCKET_IFNAME",)),
        ((1,), ("GLOO_SOCKET_IFNAME",)),
    ]
    assert commands("NET013", hits[0])[0] == "export NCCL_SOCKET_IFNAME=eth0"
    assert hits[0].confidence is Confidence.LIKELY


def test_acquits_when_the_default_route_leads_there_after_all() -> None:
    assert check("NET013", storage_chosen({})).state == "clear"


def test_is_certain_when_a_peer_has_no_route_at_all() -> None:
    case = storage_chosen(NO_ROUTE)
    nodes = dict(case.nodes)
    for n in (0, 2):
        net = net_of(n)
        nodes[n] = replace(
            nodes[n], net=replace(net, routes=tuple(r for r in net.routes if r.destination != "0.0.0.0/0"))
        )
    hits = check("NET013", replace(case, nodes=nodes)).hits
    assert {h.confidence for h in hits} == {Confidence.CERTAIN}


def test_finds_a_missing_route_without_probes() -> None:
    local = (Route(destination="10.0.0.0/24", interface="eth0"),)
    net = {0: replace(net_of(0), routes=local), 1: plus(1, STORAGE), 2: replace(net_of(2), routes=local)}
    transport = {1: choosing("nccl", 1, "eth9", "192.168.99.2")}
    [hit] = check("NET013", fleet(3, net=net, transport=transport, reach=None)).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((1,), ())


def test_policy_routing_may_have_the_route() -> None:
    local = (Route(destination="10.0.0.0/24", interface="eth0"),)
    transport = {1: choosing("nccl", 1, "eth9", "192.168.99.2")}
    found = {}
    for is_marked in (False, True):
        rules = (RoutingRule(text="100: from all lookup 7", is_marked=is_marked),)
        net = {n: replace(net_of(n), routes=local, routing_rules=rules) for n in (0, 2)}
        made = fleet(3, net={**net, 1: plus(1, STORAGE)}, transport=transport, reach=None)
        case = storage_chosen(SILENT)
        ruled = {
            n: replace(f, net=replace(f.net, routing_rules=rules)) if isinstance(f.net, NetFacts) else f
            for n, f in case.nodes.items()
        }
        refused = storage_chosen(NO_ROUTE)
        kernel = {n: replace(f, net=ruled[n].net) for n, f in refused.nodes.items()}
        cases = (made, replace(case, nodes=ruled), replace(refused, nodes=kernel))
        found[is_marked] = [bool(check("NET013", one).hits) for one in cases]
    assert found == {False: [False, False, True], True: [True, True, True]}


def test_does_not_call_a_routed_pair_of_networks_unroutable() -> None:
    # Two racks, each with a subnet of its own, and a firewall between them: the route is there.
    far = interface("eth0", "10.5.0.2/24")
    net = {1: replace(net_of(1), interfaces=(far,), routes=(Route(destination="0.0.0.0/0", interface="eth0"),))}
    probes = {(0, 1): {**SILENT, "address": "10.5.0.2"}}
    case = fleet(2, net=net, transport={1: choosing_both(1, "eth0", "10.5.0.2")}, reach=healthy_reach(2, probes))
    assert check("NET013", case).state == "clear"


def test_is_clear_when_all_are_in_one_network() -> None:
    assert check("NET013", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("NET013", fleet(3, net={2: FactMissing("unreadable")})).unchecked == {2: "unreadable"}
