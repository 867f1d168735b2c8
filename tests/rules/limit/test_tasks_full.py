from msgspec.structs import replace

from allready.model import FactMissing, LimitFacts, Severity
from tests.fleets import check, fleet, healthy_node


def limits(used: int | None, most: int | None) -> LimitFacts:
    healthy = healthy_node(0, 1).limits
    assert isinstance(healthy, LimitFacts)
    return replace(healthy, num_tasks=used, max_tasks=most)


def test_names_the_node_and_what_is_wrong_there() -> None:
    [hit] = check("LIM010", fleet(2, limits={1: limits(1000, 1024)})).hits
    assert hit.culprits.nodes == (1,)
    assert {name: hit.values[name] for name, _ in EXPECTED} == dict(EXPECTED)


EXPECTED = (("used", 1000), ("limit", 1024))


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {"room": limits(100, 4096), "no limit": limits(None, None)}
    wrong = [name for name, facts in harmless.items() if check("LIM010", fleet(2, limits={0: facts, 1: facts})).hits]
    assert not wrong


def test_healthy_nodes_are_clear() -> None:
    assert check("LIM010", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("LIM010", fleet(2, limits={1: FactMissing("no /proc")})).unchecked == {1: "no /proc"}


def test_nothing_left_is_an_error() -> None:
    [hit] = check("LIM010", fleet(1, limits={0: limits(1024, 1024)})).hits
    assert hit.severity is Severity.ERROR
