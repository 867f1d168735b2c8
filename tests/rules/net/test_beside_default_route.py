from typing import Any

from msgspec.structs import replace

from allready.model import FactMissing, Fleet, InterfaceChoice, NetFacts, Route, RoutingRule, TransportFacts, UsageFacts
from allready.model.facts import ChoiceStep
from tests.facts.helpers import LO, interface
from tests.fleets import check, commands, fleet, healthy_node
from tests.rules.gpu.made_up import launched

CARDS = (LO, interface("eth0", "10.0.0.1/24"), interface("eth1", "10.0.1.1/24"))
ROUTES = (
    Route(destination="0.0.0.0/0", interface="eth1", gateway="10.0.1.254"),
    Route(destination="10.0.0.0/24", interface="eth0"),
    Route(destination="10.0.1.0/24", interface="eth1"),
)


def choice(variable: str, name: str, address: str, **changes: Any) -> InterfaceChoice:
    made = InterfaceChoice(
        variable=variable, pattern=None, interfaces=(name,), addresses=(address,), step=ChoiceStep.ALL_BUT
    )
    return replace(made, **changes)


def alone(peers: tuple[str, ...] = (), num_nodes: int = 2, net: NetFacts | None = None, **changes: Any) -> Fleet:
    """One node that is examined as one of several."""
    facts = net or NetFacts(interfaces=CARDS, routes=ROUTES)
    transport = TransportFacts(
        nccl=choice("NCCL_SOCKET_IFNAME", **{"name": "eth0", "address": "10.0.0.1", **changes}),
        gloo=choice("GLOO_SOCKET_IFNAME", "eth1", "10.0.1.1"),
    )
    usage = UsageFacts(asked_peers=peers)
    made = launched(fleet(1, net={0: facts}, transport={0: transport}, usage={0: usage}), num_nodes=num_nodes)
    return replace(made, world=replace(made.world, num_nodes=num_nodes), roll=None, reach=None, collectives=None)


def test_names_the_library_its_interface_and_that_of_the_default_route() -> None:
    [hit] = check("NET028", alone()).hits
    assert (hit.values["library"], hit.values["interface"], hit.values["default"]) == ("NCCL", "eth0", "eth1")
    assert commands("NET028", hit)[1] == "export NCCL_SOCKET_IFNAME=eth1"


def test_names_the_peer_that_is_reached_by_another_interface() -> None:
    [hit] = check("NET028", alone(("10.0.1.9",))).hits
    assert (hit.values["peer"], hit.values["route"], hit.values["default"]) == ("10.0.1.9", "eth1", None)
    assert commands("NET028", hit)[0] == "ip route get 10.0.1.9; ip -br address"


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    ib0 = replace(interface("ib0", "10.9.0.1/24"), kind="infiniband")
    plain = NetFacts(interfaces=CARDS, routes=ROUTES)
    harmless = {
        "one node": alone(num_nodes=1),
        "set by hand": alone(pattern="eth0"),
        "the subnet of NCCL_COMM_ID": alone(step=ChoiceStep.COMM_ID),
        "InfiniBand": alone(net=replace(plain, interfaces=(*CARDS, ib0)), name="ib0", address="10.9.0.1"),
        "no default route": alone(net=replace(plain, routes=ROUTES[1:])),
        "two default routes": alone(net=replace(plain, routes=(*ROUTES, replace(ROUTES[0], interface="eth0")))),
        "other tables": alone(net=replace(plain, routing_rules=(RoutingRule(text="", source="10.0.0.1/32"),))),
        "a peer in its network": alone(("10.0.0.9",), pattern=None),
    }
    # Gloo's own peer is another matter: it chose eth1.
    found = {name: [h.values["library"] for h in check("NET028", made).hits] for name, made in harmless.items()}
    assert {name for name, libraries in found.items() if "NCCL" in libraries} == set()


def test_nodes_that_can_be_compared_are_left_to_their_own_rules() -> None:
    assert check("NET028", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("NET028", fleet(1, net={0: FactMissing("no /proc")})).unchecked == {0: "no /proc"}


def test_a_healthy_node_is_clear() -> None:
    assert check("NET028", alone(net=healthy_node(0, 1).net)).state == "clear"  # type: ignore[arg-type]
