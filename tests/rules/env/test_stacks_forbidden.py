from msgspec.structs import replace

from allready.model import FactMissing, LimitFacts
from tests.fleets import check, fleet, healthy_node


def limits(scope: int | None, *, can_ptrace: bool | None = False) -> LimitFacts:
    healthy = healthy_node(0, 1).limits
    assert isinstance(healthy, LimitFacts)
    return replace(healthy, ptrace_scope=scope, can_ptrace=can_ptrace)


def test_names_the_node_and_what_is_wrong_there() -> None:
    [hit] = check("ENV018", fleet(2, limits={1: limits(2)})).hits
    assert hit.culprits.nodes == (1,)
    assert {name: hit.values[name] for name, _ in EXPECTED} == dict(EXPECTED)


EXPECTED = (("scope", 2),)


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {
        "of launchers": limits(1),
        "none": limits(None),
        "with the capability": limits(2, can_ptrace=True),
        "off": limits(0),
    }
    wrong = [name for name, facts in harmless.items() if check("ENV018", fleet(2, limits={0: facts, 1: facts})).hits]
    assert not wrong


def test_healthy_nodes_are_clear() -> None:
    assert check("ENV018", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("ENV018", fleet(2, limits={1: FactMissing("no /proc")})).unchecked == {1: "no /proc"}
