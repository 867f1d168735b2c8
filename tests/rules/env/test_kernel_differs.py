from allready.judging.registry import load
from allready.model import FactMissing, Severity
from tests.fleets import check, fleet
from tests.rules.env.made import host


def test_informs_of_the_node_with_another_kernel() -> None:
    [hit] = check("ENV005", fleet(4, host={3: host(3, kernel="5.15.0")})).hits
    assert hit.culprits.nodes == (3,)
    assert load()["ENV005"].severity is Severity.INFO


def test_blames_nobody_on_a_tie() -> None:
    [hit] = check("ENV005", fleet(2, host={1: host(1, kernel="5.15.0")})).hits
    assert hit.culprits.nodes == ()


def test_is_clear_when_all_are_alike() -> None:
    assert check("ENV005", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("ENV005", fleet(3, host={1: FactMissing("unreadable")})).unchecked == {1: "unreadable"}
