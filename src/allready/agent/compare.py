"""The nodes' facts compared while the ranks import: what differs between nodes, and what is too small on one."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from allready.model import Finding, Fleet, NodeFacts, Report, Severity, Status
from allready.rules.engine import judge
from allready.rules.verdict import verdict_of

AREAS = ("ENV", "LIM")
"""Areas of rules that belong into a job's report; names, ports and paths have shown by the roll call that they work."""


class Comparison:
    """Made once, when every node has sent its facts; `into` every report from then on."""

    def __init__(self, facts: Mapping[int, NodeFacts], *, started: datetime) -> None:
        self._facts = facts
        self._started = started
        self._is_made = False
        self._found: tuple[Finding, ...] = ()
        self._now: datetime | None = None

    def make(self, fleet: Callable[[], Fleet], nodes: Collection[int]) -> bool:
        """Judge the facts if all are here and that was not done; true when it found something just now."""
        if self._is_made or len(nodes) < 2 or not set(nodes) <= set(self._facts):
            return False
        self._is_made = True
        findings, _ = judge(fleet())
        self._found = tuple(f for f in findings if f.code[:3] in AREAS and f.severity.weight >= Severity.WARNING.weight)
        self._now = datetime.now(UTC)
        return bool(self._found)

    def into(self, report: Report) -> Report:
        """The report with what was found.

        A difference that is an error is the verdict only where the job itself shows nothing worse.
        """
        found, now = self._found, self._now
        if not found or now is None:
            return report
        if report.verdict is None and found[0].severity.weight >= Severity.ERROR.weight:
            verdict = verdict_of(found, now=now, visible_since=self._started)
            return replace(report, findings=(*found, *report.findings), verdict=verdict, status=Status.FAULT)
        return replace(report, findings=(*report.findings, *found))
