from allready.model import ClockFacts, FactMissing, Severity
from tests.fleets import check, fleet


def off(offset_s: float, uncertainty_s: float = 0.001) -> ClockFacts:
    return ClockFacts(offset_s=offset_s, uncertainty_s=uncertainty_s)


def test_warns_of_the_node_whose_clock_is_off() -> None:
    [hit] = check("ENV004", fleet(4, clock={2: off(-5.0)})).hits
    assert hit.culprits.nodes == (2,)
    assert hit.values["offsets"] == "2 (gpu2) -5.0 s"


def test_names_node_0_when_all_others_agree() -> None:
    [hit] = check("ENV004", fleet(4, clock={n: off(5.0 + n / 100) for n in (1, 2, 3)})).hits
    assert hit.culprits.nodes == (0,)


def test_blames_nobody_of_two() -> None:
    [hit] = check("ENV004", fleet(2, clock={1: off(5.0)})).hits
    assert hit.culprits.nodes == ()


def test_is_never_more_than_a_warning() -> None:
    from allready.judging.loading import load

    [hit] = check("ENV004", fleet(2, clock={1: off(86400.0)})).hits
    assert hit.severity is None
    assert load()["ENV004"].severity is Severity.WARNING


def test_does_not_count_what_may_be_the_measurement() -> None:
    assert check("ENV004", fleet(3, clock={1: off(1.5, 0.9), 2: off(0.8)})).state == "clear"


def test_is_clear_when_clocks_agree() -> None:
    assert check("ENV004", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("ENV004", fleet(3, clock={1: FactMissing("no round trip")})).unchecked == {1: "no round trip"}
