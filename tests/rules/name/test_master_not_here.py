from msgspec.structs import replace

from allready.model import Confidence, FactMissing, HostFacts, NameFacts, NetFacts, Severity
from tests.fleets import check, fleet, healthy_node
from tests.rules.port.fleets import node_0_alone


def names(*addresses: str) -> NameFacts:
    return NameFacts(own_name="gpu0", own_addresses=("10.0.0.1",), master_name="head", master_addresses=addresses)


def test_says_that_node_0_does_not_have_the_address() -> None:
    [hit] = check("NAM007", node_0_alone(2, facts={"names": names("10.0.0.77")})).hits
    assert (hit.culprits.nodes, hit.severity, hit.confidence) == ((0,), None, Confidence.LIKELY)
    assert hit.values["own"] == "10.0.0.1"


def test_a_public_or_a_containers_address_may_be_translated() -> None:
    [public] = check("NAM007", node_0_alone(2, facts={"names": names("34.1.2.3")})).hits
    host = healthy_node(0, 2).host
    assert isinstance(host, HostFacts)
    pod = {"names": names("10.96.0.7"), "host": replace(host, container="kubernetes")}
    [service] = check("NAM007", node_0_alone(2, facts=pod)).hits
    assert public.severity is service.severity is Severity.WARNING


def test_an_address_of_the_own_subnet_is_never_translated() -> None:
    host = healthy_node(0, 2).host
    assert isinstance(host, HostFacts)
    pod = {"names": names("10.0.0.77"), "host": replace(host, container="docker")}
    [hit] = check("NAM007", node_0_alone(2, facts=pod)).hits
    assert hit.severity is None


def test_an_address_without_a_route_is_never_translated() -> None:
    host, net = healthy_node(0, 2).host, healthy_node(0, 2).net
    assert isinstance(host, HostFacts)
    assert isinstance(net, NetFacts)
    closed = replace(net, routes=tuple(r for r in net.routes if r.gateway is None))
    pod = {"names": names("10.96.0.7"), "host": replace(host, container="docker"), "net": closed}
    [hit] = check("NAM007", node_0_alone(2, facts=pod)).hits
    assert hit.severity is None


def test_says_nothing_once_another_node_got_through() -> None:
    assert check("NAM007", node_0_alone(3, present=(0, 2), facts={"names": names("10.0.0.77")})).state == "clear"


def test_its_own_name_may_be_loopback_on_node_0() -> None:
    assert check("NAM007", node_0_alone(2, facts={"names": names("127.0.1.1")})).state == "clear"


def test_is_clear_when_node_0_has_the_address() -> None:
    assert check("NAM007", node_0_alone(2)).state == "clear"


def test_says_when_it_could_not_check() -> None:
    outcome = check("NAM007", fleet(2, net={0: FactMissing("no netlink")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {0: "no netlink"})
