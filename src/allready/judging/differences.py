"""The nodes' facts compared while the ranks import: what differs between nodes, and what is too small on one."""

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime

from msgspec.structs import replace

from allready.judging.engine import judge
from allready.judging.report_builder import verdict_from, verdict_of
from allready.model import FaultClass, Finding, Fleet, NodeFacts, Report, Severity, Status

AREAS = ("ENV", "LIM")
"""Areas of rules that belong into a job's report; names and ports have shown by the roll call that they work."""
CHOICES = frozenset({"NET009", "NET010", "NET011", "NET012", "NET014"})
"""Which interface NCCL or Gloo takes for data: no roll call shows it, and it explains a job that does not connect."""
UNEXPLAINED = frozenset({
    FaultClass.START_NAME, FaultClass.START_PATH, FaultClass.ENV_MISMATCH, FaultClass.ENV_LIMIT,
})  # fmt: skip


class Comparison:
    """Made once, when every node has sent its facts; `into` every report from then on."""

    def __init__(self, facts: Mapping[int, NodeFacts], *, started: datetime) -> None:
        self._facts = facts
        self._started = started
        self._is_made = False
        self._found: tuple[Finding, ...] = ()
        self._choices: tuple[Finding, ...] = ()
        self._now: datetime | None = None

    def make(self, fleet: Callable[[], Fleet], nodes: Collection[int]) -> bool:
        """Judge the facts if all are here and that was not done; true when it found something just now."""
        if self._is_made or len(nodes) < 2 or not set(nodes) <= set(self._facts):
            return False
        self._is_made = True
        findings, _ = judge(fleet())
        grave = [f for f in findings if f.severity.weight >= Severity.WARNING.weight]
        self._found = tuple(f for f in grave if f.code[:3] in AREAS)
        self._choices = tuple(f for f in grave if f.code in CHOICES and f.severity is Severity.BLOCKER)
        self._now = datetime.now(UTC)
        return bool(self._found or self._choices)

    def into(self, report: Report) -> Report:
        """The report with what was found.

        A difference that is an error is the verdict only where the job itself shows nothing worse.  A choice of
        interfaces that cannot work is reported only of a job that does not connect, and is why it does not.
        """
        report = self._explained(report)
        found, now = self._found, self._now
        if not found or now is None:
            return report
        if report.verdict is None and found[0].severity.weight >= Severity.ERROR.weight:
            verdict = verdict_of(found, now=now, visible_since=self._started)
            return replace(report, findings=(*found, *report.findings), verdict=verdict, status=Status.FAULT)
        return replace(report, findings=(*report.findings, *found))

    def _explained(self, report: Report) -> Report:
        verdict = report.verdict
        if verdict is None or verdict.fault_class not in UNEXPLAINED:
            return report
        named = set(verdict.culprits.variables)
        is_open = not (verdict.culprits.nodes or verdict.culprits.ranks or verdict.culprits.links)
        cause = next((f for f in self._choices if is_open or named & set(f.culprits.variables)), None)
        if cause is None:
            return report
        since = datetime.fromisoformat(verdict.detected_time)
        explained = verdict_from(cause, detected=since, detect_s=verdict.detect_s)
        explained = replace(explained, fault_time=verdict.fault_time)  # when the job stood, not when nodes differed
        return replace(report, verdict=explained, findings=(cause, *report.findings))
