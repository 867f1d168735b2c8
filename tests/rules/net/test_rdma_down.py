from allready.model import FactMissing, RdmaFacts
from tests.fleets import check, fleet
from tests.rules.net.made import eights, ports, with_down


def test_names_the_node_whose_port_is_down() -> None:
    [hit] = check("NET016", fleet(4, rdma=eights(4, n2=with_down(8, 5)))).hits
    assert hit.culprits.nodes == (2,)
    assert hit.values["ports"] == "mlx5_5/1"
    assert hit.values["devices"] == "mlx5_5:1"


def test_names_the_node_of_two_whose_port_is_down() -> None:
    [hit] = check("NET016", fleet(2, rdma=eights(2, n0=with_down(8, 1)))).hits
    assert hit.culprits.nodes == (0,)


def test_puts_several_ports_of_one_node_into_one_finding() -> None:
    [hit] = check("NET016", fleet(4, rdma=eights(4, n2=with_down(8, *range(8))))).hits
    assert hit.values["ports"] == "mlx5_0/1, mlx5_1/1, mlx5_2/1, mlx5_3/1, … +4"


def test_takes_a_port_that_half_of_the_nodes_do_not_use_for_unused() -> None:
    rdma = {n: with_down(8, 7) if n % 2 else ports(8) for n in range(4)}
    assert check("NET016", fleet(4, rdma=rdma)).state == "clear"


def test_is_clear_when_all_ports_are_alike_or_there_are_none() -> None:
    assert check("NET016", fleet(4)).state == "clear"
    assert check("NET016", fleet(2, rdma=dict.fromkeys((0, 1), RdmaFacts(ports=())))).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("NET016", fleet(3, rdma={2: FactMissing("/sys/class/infiniband: permission denied")}))
    assert (outcome.state, list(outcome.unchecked)) == ("not_checked", [2])
