import ast
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from allready.judging.report_builder import keep_first_detection, status_of, verdict_of
from allready.model import Confidence, Culprits, FaultClass, Finding, NotChecked, Severity, Status, Verdict
from tests.cases import cases
from tests.text.sources import nodes, trees

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
UNCHECKED = (NotChecked(code="COL001", node=None, why="x"),)


def finding(severity: Severity, code: str = "NET001") -> Finding:
    return Finding(
        code=code,
        severity=severity,
        fault_class=FaultClass.NET_BROKEN,
        confidence=Confidence.LIKELY,
        culprits=Culprits(nodes=(1,)),
        message=f"{code} says so",
        remedy="mend it",
        fault_time="2026-01-02T03:04:00+00:00",
    )


@cases(
    ("severities", "unchecked", "waiting", "status"),
    [
        ([], (), False, Status.HEALTHY),
        ([], (), True, Status.WAITING),
        ([Severity.INFO, Severity.WARNING], (), False, Status.HEALTHY),
        ([Severity.ERROR], (), False, Status.FAULT),
        ([Severity.WARNING, Severity.BLOCKER], UNCHECKED, False, Status.FAULT),
        ([Severity.BLOCKER], (), True, Status.WAITING),
        ([], UNCHECKED, False, Status.UNKNOWN),
        ([Severity.WARNING], UNCHECKED, False, Status.UNKNOWN),
    ],
)
def test_the_status_in_one_word(
    severities: list[Severity], unchecked: tuple[NotChecked, ...], waiting: bool, status: Status
) -> None:
    assert status_of([finding(s) for s in severities], unchecked, waiting=waiting) is status


def test_the_verdict_is_the_first_finding_that_is_an_error() -> None:
    found = [
        finding(Severity.BLOCKER, "NET001"),
        finding(Severity.ERROR, "COL009"),
        finding(Severity.WARNING, "LIM001"),
    ]
    verdict = verdict_of(found, now=NOW, visible_since=NOW - timedelta(seconds=2.5))
    assert verdict is not None
    assert (verdict.code, verdict.sentence, verdict.remedy) == ("NET001", "NET001 says so", "mend it")
    assert (verdict.culprits.nodes, verdict.fault_time) == ((1,), "2026-01-02T03:04:00+00:00")
    assert (verdict.detected_time, verdict.detect_s) == ("2026-01-02T03:04:05.000+00:00", 2.5)


def test_warnings_make_no_verdict() -> None:
    assert verdict_of([finding(Severity.WARNING)], now=NOW, visible_since=None) is None
    assert verdict_of([], now=NOW, visible_since=None) is None


def test_a_clock_that_went_back_gives_no_negative_duration() -> None:
    verdict = verdict_of([finding(Severity.ERROR)], now=NOW, visible_since=NOW + timedelta(seconds=3))
    assert verdict is not None
    assert verdict.detect_s == 0.0


def test_without_a_start_no_duration_is_claimed() -> None:
    verdict = verdict_of([finding(Severity.ERROR)], now=NOW, visible_since=None)
    assert verdict is not None
    assert verdict.detect_s is None


def test_the_time_of_detection_is_that_of_the_first_verdict_of_the_kind() -> None:
    old = verdict_of([finding(Severity.ERROR)], now=NOW, visible_since=NOW - timedelta(seconds=1))
    later = NOW + timedelta(seconds=9)
    new = verdict_of([finding(Severity.ERROR)], now=later, visible_since=NOW - timedelta(seconds=1))
    assert old is not None
    assert new is not None
    new = replace(new, sentence="the same with more words")
    kept = keep_first_detection(new, old)
    assert isinstance(kept, Verdict)
    assert (kept.detected_time, kept.detect_s) == (old.detected_time, old.detect_s)
    assert kept.sentence == "the same with more words"


def test_another_accusation_has_a_time_of_its_own() -> None:
    old = verdict_of([finding(Severity.ERROR)], now=NOW, visible_since=NOW)
    other = verdict_of([finding(Severity.ERROR, "COL001")], now=NOW + timedelta(seconds=9), visible_since=NOW)
    assert keep_first_detection(other, old) == other
    assert keep_first_detection(other, None) == other
    assert keep_first_detection(None, old) is None
    assert old is not None
    elsewhere = replace(old, culprits=Culprits(nodes=(0,)), detected_time="later")
    assert keep_first_detection(elsewhere, old) == elsewhere


def made_by_hand(tree: ast.Module, names: set[str]) -> Iterator[str]:
    """Calls of these classes of the model."""
    imported = {
        alias.asname or alias.name: alias.name
        for node in nodes(tree, ast.ImportFrom)
        if (node.module or "").startswith("allready.model")
        for alias in node.names
    }
    for node in nodes(tree, ast.Call):
        if isinstance(node.func, ast.Name) and imported.get(node.func.id) in names:
            yield imported[node.func.id]


def test_reports_and_verdicts_are_made_in_one_place() -> None:
    found = {place: sorted(made_by_hand(tree, {"Report", "Verdict"})) for place, tree in trees().items()}
    assert {place: made for place, made in found.items() if made} == {
        "judging/report_builder.py": ["Report", "Verdict"]
    }
