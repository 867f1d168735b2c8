from msgspec.structs import replace

from allready.model import FactMissing, HostFacts
from tests.fleets import check, fleet, healthy_node


def host(num_cpus: int | None) -> HostFacts:
    healthy = healthy_node(0, 2).host
    assert isinstance(healthy, HostFacts)
    return replace(healthy, num_cpus=num_cpus)


def test_names_the_node_with_one_cpu_for_two_ranks() -> None:
    [hit] = check("LIM005", fleet(2, host={1: host(1)})).hits
    assert hit.culprits.nodes == (1,)
    assert (hit.values["num_cpus"], hit.values["nproc"]) == (1, 2)


def test_one_cpu_for_each_rank_is_enough() -> None:
    assert check("LIM005", fleet(2, host={1: host(2)})).state == "clear"


def test_accuses_nobody_whose_number_is_not_known() -> None:
    assert check("LIM005", fleet(2, host={1: host(None)})).state == "clear"


def test_is_clear_on_healthy_nodes() -> None:
    assert check("LIM005", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("LIM005", fleet(2, host={0: FactMissing("no /proc")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {0: "no /proc"})
