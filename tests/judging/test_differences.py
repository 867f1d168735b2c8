"""Nodes' facts beside what a job shows: what explains it, and what is only reported."""

from collections.abc import Iterable
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from allready.judging import differences as compare
from allready.judging.conclude import Known, concluded
from allready.judging.engine import judge
from allready.judging.loading import load
from allready.model import (
    ChoiceFault,
    Confidence,
    Culprits,
    EnvFacts,
    FaultClass,
    Finding,
    Fleet,
    NodeFacts,
    Report,
    Severity,
    Status,
    Verdict,
    World,
)
from tests.fleets import fleet
from tests.rules.env.made import host
from tests.rules.gpu.made_up import gpus
from tests.rules.net.made import choosing

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def found(code: str, severity: Severity = Severity.BLOCKER, **culprits: tuple[object, ...]) -> Finding:
    return Finding(
        code=code,
        severity=severity,
        fault_class=FaultClass.START_NAME,
        confidence=Confidence.CERTAIN,
        culprits=Culprits(**culprits),  # type: ignore[arg-type]
        message=f"{code} says",
        remedy="do",
        evidence=(),
    )


def report(fault_class: FaultClass | None, **culprits: tuple[object, ...]) -> Report:
    verdict = None
    if fault_class is not None:
        verdict = Verdict(
            code="GLO008",
            fault_class=fault_class,
            confidence=Confidence.LIKELY,
            culprits=Culprits(**culprits),  # type: ignore[arg-type]
            sentence="refused",
            remedy="look",
            fault_time=None,
            detected_time=NOW.isoformat(),
            detect_s=0.5,
        )
    return Report(
        tool_version="0",
        command="run",
        started=NOW.isoformat(),
        duration_s=1.0,
        world=World(num_nodes=2, world_size=2),
        status=Status.FAULT if verdict else Status.HEALTHY,
        verdict=verdict,
        findings=(),
        not_checked=(),
    )


def into(monkeypatch: pytest.MonkeyPatch, findings: Iterable[Finding], told: Report) -> Report:
    monkeypatch.setattr(compare, "judge", lambda fleet, rules: (tuple(findings), ()))
    facts = {n: NodeFacts.none("made up") for n in (0, 1)}
    comparison = compare.Comparison(facts, started=NOW)
    comparison.make(lambda: Fleet(world=World(num_nodes=2, world_size=2)), (0, 1))
    return concluded(told, Known(rules=load(), differences=comparison.differences))


SAME = found("NET009", nodes=(0, 1), variables=("GLOO_SOCKET_IFNAME",))


def test_the_choice_of_interfaces_explains_a_job_that_does_not_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    before = report(FaultClass.START_PATH)
    after = into(monkeypatch, [SAME], before)
    assert after.verdict is not None
    assert (after.verdict.code, after.verdict.culprits) == ("NET009", SAME.culprits)
    assert (after.verdict.sentence, after.verdict.detect_s) == ("NET009 says", 0.5)
    assert after.findings[0] is SAME
    assert after.status is Status.FAULT


def test_it_replaces_the_culprits_of_the_same_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = found("NET010", nodes=(1,), variables=("GLOO_SOCKET_IFNAME",))
    guessed = report(FaultClass.START_NAME, nodes=(0, 1), variables=("GLOO_SOCKET_IFNAME",))
    after = into(monkeypatch, [missing], guessed)
    assert after.verdict is not None
    assert after.verdict.culprits.nodes == (1,)


@pytest.mark.parametrize(
    "told",
    [
        report(None),
        report(FaultClass.DEAD),
        report(FaultClass.DESYNC_FLOW),
        report(FaultClass.START_PATH, links=((0, 1),)),
    ],
    ids=["healthy", "dead", "desync", "a-path"],
)
def test_a_job_that_has_another_reason_or_none_is_left_alone(monkeypatch: pytest.MonkeyPatch, told: Report) -> None:
    assert into(monkeypatch, [SAME], told) == told


def test_what_differs_is_told_beside_the_jobs_own_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    differs = replace(found("ENV001", Severity.ERROR, nodes=(1,)), fault_class=FaultClass.ENV_MISMATCH)
    beside = into(monkeypatch, [differs], report(FaultClass.DEAD))
    assert beside.verdict is not None
    assert (beside.verdict.code, beside.findings) == ("GLO008", (differs,))
    alone = into(monkeypatch, [differs], report(None))
    assert alone.verdict is not None
    assert (alone.verdict.code, alone.status) == ("ENV001", Status.FAULT)
    info = replace(differs, severity=Severity.INFO)
    assert into(monkeypatch, [info, replace(SAME, severity=Severity.WARNING)], report(None)) == report(None)


def test_rules_say_which_of_them_a_job_shows_and_the_layer_says_what_only_explains() -> None:
    nodes = fleet(
        2,
        host={1: replace(host(1), kernel="5.15.0")},  # information only
        env={1: EnvFacts(variables={"NCCL_ALGO": "Tree"})},
        transport={1: choosing("nccl", 1, None, pattern="ens99", fault=ChoiceFault.NO_MATCH)},
        gpu={1: gpus(1, num=4)},
    )
    assert "GPU003" in {f.code for f in judge(nodes)[0]}  # of a check; ranks that run may hold GPUs
    comparison = compare.Comparison(nodes.nodes, started=NOW)
    assert not comparison.make(lambda: nodes, (0,))
    assert comparison.make(lambda: nodes, (0, 1))
    assert not comparison.make(lambda: nodes, (0, 1))
    assert comparison.differences is not None
    assert {f.code for f in comparison.differences.shown} == {"ENV002"}
    assert {f.code for f in comparison.differences.choices} == {"NET010"}
