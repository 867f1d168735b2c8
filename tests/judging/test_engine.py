import logging
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from allready.judging import registry
from allready.judging.arbiter import in_order
from allready.judging.engine import crashed, judge, run
from allready.judging.layers import Layer
from allready.judging.loading import load
from allready.judging.registry import RULES, Rule
from allready.model import (
    Confidence,
    Culprits,
    EnvFacts,
    Evidence,
    FactMissing,
    FaultClass,
    Finding,
    Hit,
    HostFacts,
    NetFacts,
    NotApplicable,
    PerNode,
    RollCall,
    Severity,
    UncheckedKind,
    World,
)
from allready.text.reasons import not_checked, reason
from tests.fleets import fleet


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules made here must not become rules of the program."""
    load()
    monkeypatch.setattr(registry, "RULES", dict(RULES))


def rule(code: str, **changes: Any) -> Rule:
    fields: dict[str, Any] = {
        "code": code,
        "severity": Severity.WARNING,
        "fault_class": FaultClass.ENV_LIMIT,
        "title": "t",
        "message": "node {node}",
        "remedy": "mend {node}",
        "since": "0.1",
        "layer": Layer.READINESS,
    }
    return Rule(**(fields | changes))


@pytest.fixture
def every_node(own_registry: None) -> Rule:
    """A rule that hits on every node it is given."""

    @rule("TST001")
    def hits_every_node(net: PerNode[NetFacts], host: PerNode[HostFacts]) -> Iterator[Hit]:
        assert list(net) == list(host)
        for node in net:
            yield Hit(values={"node": node}, culprits=Culprits(nodes=(node,)))

    return hits_every_node


def test_a_rule_sees_the_nodes_that_have_all_it_needs(every_node: Rule) -> None:
    made = fleet(4, net={1: FactMissing("no /proc")}, host={2: FactMissing("no uname")})
    outcome = run(every_node, made)
    assert [h.culprits.nodes for h in outcome.hits] == [(0,), (3,)]
    assert outcome.unchecked == {1: "no /proc", 2: "no uname"}
    assert outcome.state == "hit"


def test_without_any_node_it_is_not_checked_and_never_clear(every_node: Rule) -> None:
    outcome = run(every_node, fleet(2, net={0: FactMissing("a"), 1: FactMissing("b")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {0: "a", 1: "b"})


def test_a_fact_that_cannot_exist_is_not_worth_a_word(every_node: Rule) -> None:
    outcome = run(every_node, fleet(2, net={0: NotApplicable("no network on purpose")}))
    assert (outcome.state, outcome.unchecked) == ("hit", {})


def test_hits_win_over_what_could_not_be_looked_at_and_clear_needs_everybody() -> None:
    @rule("TST002")
    def never_hits(net: PerNode[NetFacts]) -> Iterator[Hit]:
        assert net
        yield from ()

    assert run(never_hits, fleet(2)).state == "clear"
    assert run(never_hits, fleet(2, net={1: FactMissing("x")})).state == "not_checked"


def test_a_part_of_the_job_that_was_not_looked_at_says_why() -> None:
    @rule("TST003")
    def asks_for_the_roll(roll: RollCall) -> Iterator[Hit]:
        yield Hit(values={"node": len(roll.claims)})

    assert run(asks_for_the_roll, fleet(2)).state == "hit"
    outcome = run(asks_for_the_roll, fleet(2, roll=None, why_not={"roll": "one node only"}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {None: "one node only"})
    assert run(asks_for_the_roll, fleet(2, roll=None)).unchecked == {None: "not examined"}


def test_a_part_that_the_job_cannot_have_is_not_missed() -> None:
    @rule("TST009")
    def needs_a_roll(roll: RollCall) -> Iterator[Hit]:
        yield Hit(values={"node": 0})

    alone = replace(fleet(1, roll=None), inapplicable=frozenset({"roll"}))
    outcome = run(needs_a_roll, alone)
    assert (outcome.state, outcome.unchecked) == ("clear", {})


def test_what_is_optional_is_used_and_not_missed() -> None:
    @rule("TST004")
    def takes_what_there_is(
        world: World, env: PerNode[EnvFacts] | None = None, roll: RollCall | None = None
    ) -> Iterator[Hit]:
        yield Hit(values={"node": (world.num_nodes, sorted(env or {}), roll is None)})

    outcome = run(takes_what_there_is, fleet(3, env={1: FactMissing("x")}, roll=None))
    assert outcome.hits[0].values["node"] == (3, [0, 2], True)
    assert outcome.unchecked == {}


def test_a_rule_that_raises_is_crashed_and_never_clear(caplog: pytest.LogCaptureFixture) -> None:
    @rule("TST005")
    def stumbles(world: World) -> Iterator[Hit]:
        yield Hit(values={"node": 1})
        raise ZeroDivisionError("oh")

    with caplog.at_level(logging.CRITICAL, logger="allready"):
        outcome = run(stumbles, fleet(2))
        findings, unchecked = judge(fleet(2), [stumbles])
    assert (outcome.state, outcome.hits) == ("crashed", ())
    assert findings == ()
    assert unchecked == (not_checked("TST005", reason(UncheckedKind.RULE_CRASHED, error="ZeroDivisionError: oh")),)


def test_a_hit_without_a_value_that_the_message_needs_is_a_crash() -> None:
    @rule("TST006")
    def forgets_a_value(world: World) -> Iterator[Hit]:
        yield Hit(values={"other": 1})

    outcome = run(forgets_a_value, fleet(2))
    assert outcome.state == "crashed"
    assert outcome.crash is not None
    assert "KeyError: 'node'" in outcome.crash


def test_a_finding_is_the_hit_in_the_rules_words(every_node: Rule) -> None:
    findings, unchecked = judge(fleet(1), [every_node])
    [finding] = findings
    assert (finding.code, finding.message, finding.remedy, finding.title) == ("TST001", "node 0", "mend 0", "t")
    assert finding.values == {"node": "0"}
    assert (finding.severity, finding.fault_class) == (Severity.WARNING, FaultClass.ENV_LIMIT)
    assert unchecked == ()


def test_a_hit_may_say_its_own_severity_and_class() -> None:
    @rule("TST007")
    def knows_better(world: World) -> Iterator[Hit]:
        yield Hit(
            values={"node": 0}, severity=Severity.BLOCKER, fault_class=FaultClass.DEAD, confidence=Confidence.POSSIBLE
        )

    [finding] = judge(fleet(1), [knows_better])[0]
    assert (finding.severity, finding.fault_class) == (Severity.BLOCKER, FaultClass.DEAD)
    assert finding.confidence is Confidence.POSSIBLE


def test_values_are_not_read_as_templates() -> None:
    """A host name with braces must not become a placeholder, nor a format specification."""

    @rule("TST008")
    def repeats_what_it_was_given(world: World) -> Iterator[Hit]:
        yield Hit(values={"node": "{0.__class__} {boom} %s"})

    [finding] = judge(fleet(1), [repeats_what_it_was_given])[0]
    assert finding.message == "node {0.__class__} {boom} %s"


def test_what_explains_most_comes_first() -> None:
    """By severity, then by the layer of the cause, then by confidence."""

    def made(code: str, layer: Layer, **hit: Any) -> Rule:
        @rule(code, layer=layer)
        def says_so(world: World) -> Iterator[Hit]:
            yield Hit(values={"node": 0}, **hit)

        return says_so

    rules = [
        made("TST010", Layer.NAME, severity=Severity.WARNING),
        made("TST011", Layer.STAGE, severity=Severity.BLOCKER),
        made("TST012", Layer.DESYNC, severity=Severity.BLOCKER, confidence=Confidence.LIKELY),
        made("TST013", Layer.DESYNC, severity=Severity.BLOCKER, confidence=Confidence.CERTAIN),
        made("TST014", Layer.MACHINE, severity=Severity.INFO),
    ]
    assert [f.code for f in judge(fleet(1), rules)[0]] == ["TST013", "TST012", "TST011", "TST010", "TST014"]


@pytest.mark.parametrize("num_nodes", [1, 2, 5])
def test_nothing_above_info_is_said_about_a_healthy_fleet(num_nodes: int) -> None:
    findings, unchecked = judge(fleet(num_nodes))
    assert [f.code for f in findings if f.severity is not Severity.INFO] == []
    assert crashed(unchecked) == ()


def test_nothing_is_said_about_a_healthy_fleet_of_cpu_ranks() -> None:
    made = fleet(2)
    nodes = {n: replace(f, launch=replace(f.launch, backend="gloo")) for n, f in made.nodes.items()}
    findings, _ = judge(replace(made, nodes=nodes))
    assert [f.code for f in findings if f.severity is not Severity.INFO] == []


def test_no_rule_crashes_on_a_fleet_of_which_nothing_is_known() -> None:
    from allready.model import Fleet, NodeFacts

    empty = Fleet(world=World(num_nodes=2, world_size=4), nodes={0: NodeFacts(), 1: NodeFacts()})
    findings, unchecked = judge(empty)
    assert [f.code for f in findings if f.severity is not Severity.INFO] == []
    assert crashed(unchecked) == ()
    assert {u.code for u in unchecked} >= {"LIM001", "GPU001", "collectives", "roll"}


def test_what_is_said_for_want_of_a_cause_stays_out_beside_a_cause() -> None:
    rules = load()

    def found(code: str, severity: Severity) -> Finding:
        return Finding(
            code=code,
            severity=severity,
            fault_class=FaultClass.DEAD,
            confidence=Confidence.POSSIBLE,
            culprits=Culprits(),
            message="",
            remedy="",
            title="",
            values={},
        )

    gone, cause, hint = (
        found("RES002", Severity.ERROR),
        found("NLG080", Severity.ERROR),
        found("RES001", Severity.WARNING),
    )
    assert [f.code for f in in_order((gone, cause, hint), rules)] == ["NLG080"]
    assert [f.code for f in in_order((hint, gone), rules)] == ["RES002", "RES001"]
    mild = found("NLG080", Severity.WARNING)
    assert [f.code for f in in_order((gone, mild), rules)] == ["RES002", "NLG080"]


def test_of_two_roots_of_one_class_the_earlier_one_that_names_something_is_first() -> None:
    def found(code: str, line: int, confidence: Confidence, **values: str) -> Finding:
        return Finding(
            code=code,
            severity=Severity.BLOCKER,
            fault_class=FaultClass.START_ABSENT,
            confidence=confidence,
            culprits=Culprits(),
            message="",
            remedy="",
            title="",
            values=values,
            evidence=(Evidence(source=f"out.log:{line}", text="", file="out.log", line=line),),
        )

    rules = load()
    assert rules["PYL010"].layer is rules["NLG054"].layer
    vague = found("PYL010", 3, Confidence.CERTAIN, error="unable to start daemons")
    named = found("NLG054", 1, Confidence.LIKELY, peer="10.0.0.1")
    assert [f.code for f in in_order((vague, named), rules)] == ["NLG054", "PYL010"]
    late = found("NLG054", 9, Confidence.LIKELY, peer="10.0.0.1")
    nothing = found("NLG054", 1, Confidence.LIKELY, peer="?")
    for other in (late, nothing):
        assert [f.code for f in in_order((vague, other), rules)] == ["PYL010", "NLG054"]


def test_a_launchers_word_that_does_not_say_whose_end_is_information_beside_any_clue() -> None:
    def found(code: str, **changes: Any) -> Finding:
        known: dict[str, Any] = {
            "code": code,
            "severity": Severity.ERROR,
            "fault_class": FaultClass.DEAD,
            "confidence": Confidence.POSSIBLE,
            "culprits": Culprits(),
            "message": "",
            "remedy": "",
            "title": "",
            "values": {},
        }
        return Finding(**(known | changes))

    def told(*findings: Finding) -> list[tuple[str, Severity]]:
        return [(f.code, f.severity) for f in in_order(findings, load())]

    result = found("RES004")
    assert told(found("LCH015"), result) == [("RES004", Severity.ERROR), ("LCH015", Severity.INFO)]
    assert told(found("LCH015", values={"peer": "?"}), result)[0] == ("RES004", Severity.ERROR)
    assert told(found("LCH015", values={"peer": "3"}), result) == [("LCH015", Severity.ERROR)]
    assert told(found("LCH015", culprits=Culprits(ranks=(3,))), result) == [("LCH015", Severity.ERROR)]
    assert told(found("LCH015"), found("DTH004"), result) == [("DTH004", Severity.ERROR), ("LCH015", Severity.INFO)]
    assert told(found("LCH015")) == [("LCH015", Severity.ERROR)]


def test_a_launchers_word_on_an_end_is_information_beside_one_that_knows_more() -> None:
    def found(code: str, severity: Severity, fault_class: FaultClass = FaultClass.DEAD) -> Finding:
        return Finding(
            code=code,
            severity=severity,
            fault_class=fault_class,
            confidence=Confidence.POSSIBLE,
            culprits=Culprits(),
            message="",
            remedy="",
            title="",
            values={},
        )

    def told(*findings: Finding) -> list[tuple[str, Severity]]:
        return [(f.code, f.severity) for f in in_order(findings, load())]

    word, table = found("LCH011", Severity.ERROR), found("ELA001", Severity.ERROR)
    assert told(word) == [("LCH011", Severity.ERROR)]
    assert told(word, table) == [("LCH011", Severity.ERROR), ("ELA001", Severity.ERROR)]  # neither knows more
    own = found("DTH005", Severity.ERROR, FaultClass.START_PATH)
    assert told(word, own, table) == [("DTH005", Severity.ERROR), ("LCH011", Severity.INFO), ("ELA001", Severity.INFO)]
    assert told(word, found("DTH006", Severity.WARNING)) == [("LCH011", Severity.ERROR), ("DTH006", Severity.WARNING)]
    assert told(word, found("NLG080", Severity.WARNING))[0] == ("LCH011", Severity.ERROR)
    assert told(word, found("JAX008", Severity.ERROR))[0] == ("LCH011", Severity.ERROR)  # less deep: an echo itself
    order = found("ELA004", Severity.WARNING)
    assert told(order, found("DTH006", Severity.WARNING)) == [("DTH006", Severity.WARNING), ("ELA004", Severity.INFO)]
    slow = found("SLW001", Severity.WARNING, FaultClass.SLOW_COMP)
    assert ("ELA004", Severity.WARNING) in told(order, slow)
