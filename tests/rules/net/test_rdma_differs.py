from allready.model import FactMissing, RdmaFacts
from tests.fleets import check, fleet
from tests.rules.net.made import eights, ports, with_down


def test_names_the_node_that_has_fewer_ports() -> None:
    [hit] = check("NET015", fleet(4, rdma=eights(4, n3=ports(7)))).hits
    assert hit.culprits.nodes == (3,)
    assert hit.values["split"] == "8 x InfiniBand 400 Gbit/s [0-2], 7 x InfiniBand 400 Gbit/s [3]"


def test_names_the_node_without_any() -> None:
    [hit] = check("NET015", fleet(3, rdma={1: RdmaFacts(ports=())})).hits
    assert hit.culprits.nodes == (1,)


def test_names_the_node_whose_ports_are_slower() -> None:
    [hit] = check("NET015", fleet(4, rdma=eights(4, n0=ports(8, rate_gbit_per_s=200.0)))).hits
    assert hit.culprits.nodes == (0,)


def test_blames_nobody_on_a_tie() -> None:
    [hit] = check("NET015", fleet(2, rdma=eights(2, n1=ports(4)))).hits
    assert hit.culprits.nodes == ()


def test_leaves_ports_that_are_down_to_another_rule() -> None:
    assert check("NET015", fleet(4, rdma=eights(4, n2=with_down(8, 5)))).state == "clear"


def test_is_clear_when_all_ports_are_alike_or_there_are_none() -> None:
    assert check("NET015", fleet(4)).state == "clear"
    assert check("NET015", fleet(2, rdma=dict.fromkeys((0, 1), RdmaFacts(ports=())))).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("NET015", fleet(3, rdma={2: FactMissing("/sys/class/infiniband: permission denied")}))
    assert (outcome.state, list(outcome.unchecked)) == ("not_checked", [2])
