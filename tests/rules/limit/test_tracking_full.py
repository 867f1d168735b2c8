from allready.model import FactMissing, Severity, UsageFacts
from tests.fleets import check, fleet


def tracked(count: int | None, most: int | None) -> UsageFacts:
    return UsageFacts(num_tracked=count, max_tracked=most)


def test_names_the_node_whose_table_is_full() -> None:
    [hit] = check("LIM007", fleet(2, usage={1: tracked(262_000, 262_144), 0: tracked(10, 262_144)})).hits
    assert (hit.culprits.nodes, hit.severity, hit.values["wanted"]) == ((1,), Severity.ERROR, 1_048_576)


def test_from_80_percent_it_is_a_warning() -> None:
    [hit] = check("LIM007", fleet(1, usage={0: tracked(210_000, 262_144)})).hits
    assert hit.severity is None


def test_many_connections_with_a_larger_table_or_no_table_are_clear() -> None:
    for count, most in ((400_000, 2_000_000), (None, None), (5, None), (5, 0), (0, 262_144)):
        assert check("LIM007", fleet(1, usage={0: tracked(count, most)})).state == "clear", (count, most)


def test_says_which_node_it_could_not_check() -> None:
    assert check("LIM007", fleet(1, usage={0: FactMissing("no /proc")})).unchecked == {0: "no /proc"}
