from allready.judging.loading import load
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


def test_another_distribution_or_boot_of_the_same_kernel_is_no_difference() -> None:
    others = {n: host(n, kernel="5.15.0-91-generic", os_name=f"Distribution {n}", boot_id=str(n)) for n in range(3)}
    assert check("ENV005", fleet(3, host=others)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("ENV005", fleet(3, host={1: FactMissing("unreadable")})).unchecked == {1: "unreadable"}
