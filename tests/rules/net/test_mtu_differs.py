from allready.model import Confidence, FactMissing, Severity
from tests.fleets import check, fleet, healthy_reach
from tests.rules.net.made import choosing_both, interface, plus, stuck, with_eth0


def test_names_the_one_node_that_differs() -> None:
    [hit] = check("NET003", fleet(4, net={2: with_eth0(2, mtu_bytes=1500)})).hits
    assert hit.culprits.nodes == (2,)
    assert str(hit.values["split"]) == "9000 [0,1,3], 1500 [2]"
    assert hit.values["command"] == "ip link set dev eth0 mtu 9000"
    assert hit.severity is None  # a warning: TCP copes


def test_blames_nobody_on_a_tie() -> None:
    [hit] = check("NET003", fleet(2, net={1: with_eth0(1, mtu_bytes=1500)})).hits
    assert hit.culprits.nodes == ()


def test_is_an_error_only_when_tcp_does_not_cope() -> None:
    changes = {"datagrams": {(0, 2): {"received_bytes": (92, 1428, 1500)}}}
    net = {2: with_eth0(2, mtu_bytes=1500)}
    [hit] = check("NET003", fleet(3, net=net, reach=healthy_reach(3, **changes))).hits
    assert (hit.severity, hit.confidence) == (None, Confidence.CERTAIN)
    reach = healthy_reach(3, {(0, 2): stuck(9000, 64, 1400)}, **changes)
    [hit] = check("NET003", fleet(3, net=net, reach=reach)).hits
    assert hit.severity is Severity.ERROR


def test_makes_one_finding_of_both_families_on_one_network() -> None:
    net = {
        n: with_eth0(n, addresses=(f"10.0.0.{n + 1}/24", f"fd00:77::{n + 1}/64"), mtu_bytes=1300 if n == 2 else 9000)
        for n in range(3)
    }
    [hit] = check("NET003", fleet(3, net=net)).hits
    assert hit.values["subnet"] == "10.0.0.0/24, fd00:77::/64"


def test_does_not_look_at_interfaces_that_the_job_will_not_use() -> None:
    docker = plus(2, interface("docker0", "172.17.0.1/16"))
    other = plus(1, interface("docker0", "172.17.0.1/16", mtu_bytes=1400))
    assert check("NET003", fleet(4, net={1: other, 2: docker})).state == "clear"


def test_compares_only_within_one_subnet() -> None:
    net = {1: plus(1, interface("eth1", "10.9.0.2/24"))}
    assert check("NET003", fleet(4, net=net, transport={1: choosing_both(1, "eth1", "10.9.0.2")})).state == "clear"


def test_is_clear_when_all_nodes_agree() -> None:
    assert check("NET003", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("NET003", fleet(2, net={1: FactMissing("permission denied")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "permission denied"})
