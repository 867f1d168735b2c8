from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from allready.judging import registry
from allready.judging.engine import RuleOutcome, run
from allready.judging.layers import Layer
from allready.judging.loading import AREAS, OF_FILES, load, load_for
from allready.judging.registry import RULES, Need, Rule, placeholders
from allready.model import (
    Collectives,
    EnvFacts,
    FaultClass,
    Fleet,
    Hit,
    NetFacts,
    NodeFacts,
    PerNode,
    Reachability,
    RollCall,
    RunEvidence,
    Severity,
    World,
)
from allready.model.fleet import OF_A_CHECK
from allready.signatures import FAMILIES
from tests.cases import cases


def rule(code: str, **changes: object) -> Rule:
    fields = {
        "code": code,
        "severity": Severity.INFO,
        "fault_class": FaultClass.HEALTHY,
        "title": "t",
        "message": "{a} {b}",
        "remedy": "{b} {c}",
        "since": "0.1",
        "layer": Layer.READINESS,
        **changes,
    }
    return Rule(**fields)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules made here must not become rules of the program."""
    load()
    monkeypatch.setattr(registry, "RULES", dict(RULES))


def test_the_parameters_say_what_a_rule_needs() -> None:
    @rule("TST001")
    def needy(
        net: PerNode[NetFacts],
        roll: RollCall,
        world: World,
        env: PerNode[EnvFacts] | None = None,
        reach: Reachability | None = None,
    ) -> Iterator[Hit]:
        """A page."""
        yield Hit()

    assert needy.needs == (
        Need("net", NetFacts, per_node=True, optional=False),
        Need("roll", RollCall, per_node=False, optional=False),
        Need("world", World, per_node=False, optional=False),
        Need("env", EnvFacts, per_node=True, optional=True),
        Need("reach", Reachability, per_node=False, optional=True),
    )
    assert (needy.name, needy.page, needy.area) == ("needy", "A page.", "judging")
    assert needy.placeholders() == {"a", "b", "c"}
    assert registry.RULES["TST001"] is needy


def test_a_code_is_given_once() -> None:
    with pytest.raises(AssertionError, match="JOB001 is taken"):

        @rule("JOB001")
        def thief(world: World) -> Iterator[Hit]:
            yield Hit()


@cases("code", ["JOB1", "job001", "JOBS001", "JOB0011", "", "JOB001 "])
def test_a_malformed_code_is_refused(code: str) -> None:
    with pytest.raises(AssertionError):

        @rule(code)
        def odd(world: World) -> Iterator[Hit]:
            yield Hit()


def test_a_rule_cannot_ask_for_what_does_not_exist() -> None:
    with pytest.raises(AssertionError, match="no such evidence"):

        @rule("TST002")
        def greedy(weather: str) -> Iterator[Hit]:
            yield Hit()

    with pytest.raises(AssertionError, match="no such evidence"):

        @rule("TST003")
        def confused(roll: PerNode[RollCall]) -> Iterator[Hit]:
            yield Hit()

    with pytest.raises(AssertionError, match="no such evidence"):

        @rule("TST004")
        def confused_too(net: NetFacts) -> Iterator[Hit]:
            yield Hit()


def test_placeholders_are_the_names_in_braces() -> None:
    assert placeholders("no {a} and {b:>3}, but {{not this}}") == {"a", "b"}
    assert placeholders("") == set()


def test_load_finds_every_area_and_sorts_by_code() -> None:
    rules = load()
    assert {r.area for r in rules.values() if not r.area.startswith("log_")} == set(AREAS)
    assert {r.area for r in rules.values()} - set(AREAS) == {f"log_{family}" for family in FAMILIES}
    assert list(rules) == sorted(rules)
    assert all(code == r.code for code, r in rules.items())


def test_loading_twice_is_harmless() -> None:
    assert load() == load()


def test_the_collectives_are_evidence() -> None:
    assert Need("collectives", Collectives, per_node=False, optional=False) in load()["COL001"].needs


def test_files_of_a_run_are_asked_all_rules_that_can_say_something_about_them() -> None:
    """The other folders are not imported for them; a rule there that could be asked would be forgotten."""
    files = Fleet(world=World(num_nodes=0, world_size=0), run_evidence=RunEvidence(), inapplicable=OF_A_CHECK)
    asked = load_for(files)
    left_out = [rule for code, rule in load().items() if code not in asked]
    assert len(left_out) > 100

    def never(**_: object) -> Iterator[Hit]:
        raise AssertionError

    outcomes = [run(replace(rule, body=never), files) for rule in left_out]
    assert [o for o in outcomes if o != RuleOutcome(code=o.code)] == []
    assert load_for(replace(files, inapplicable=frozenset())) == load()
    assert load_for(replace(files, nodes={0: NodeFacts.none("asleep")})) == load()
    assert {rule.area for rule in asked.values() if not rule.area.startswith("log_")} == {
        place.partition(".")[0] for place in OF_FILES
    }
