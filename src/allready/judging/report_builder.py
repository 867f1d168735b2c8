"""From findings to one status, one verdict and one report: the only place that makes either."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from allready import __version__
from allready.judging.arbiter import is_error
from allready.model import (
    ENDING_SIGNALS,
    Finding,
    Live,
    NotChecked,
    Phrase,
    RankStatus,
    Report,
    RunNote,
    Status,
    Verdict,
    World,
)
from allready.model.fill import in_english


def status_of(findings: Sequence[Finding], unchecked_necessary: Sequence[NotChecked], *, waiting: bool) -> Status:
    """One word for the whole: waiting while the job may still come together, else by the worst finding.

    Args:
        unchecked_necessary: what had to be looked at before "healthy" may be reported, and was not.
        waiting: the roll call is still open, or a stage is still inside its deadline.
    """
    if waiting:
        return Status.WAITING
    if any(map(is_error, findings)):
        return Status.FAULT
    return Status.UNKNOWN if unchecked_necessary else Status.HEALTHY


def status_of_job(
    standing: Finding | None, unchecked_necessary: Sequence[NotChecked], *, over: Live | None, was_stopped: bool
) -> Status:
    """Of a job that runs or is over: of what stands an error is a fault, and a warning says who is waited for.

    Args:
        standing: the finding behind the verdict.
        unchecked_necessary: as `status_of` has it.
        over: of an attempt that is over: its ranks.  One that failed without being stopped, and that nothing explains,
            is unknown.
        was_stopped: the attempt was ended on purpose.
    """
    if standing is not None and is_error(standing):
        return Status.FAULT
    if standing is not None and over is None:
        return Status.WAITING
    is_unexplained = over is not None and not was_stopped and any(map(_failed, over.ranks().values()))
    return Status.UNKNOWN if is_unexplained or unchecked_necessary else Status.HEALTHY


def _failed(rank: RankStatus) -> bool:
    return (rank.exit_code not in {None, 0} or bool(rank.signal)) and rank.signal not in ENDING_SIGNALS


def status_when_interrupted(verdict: Verdict | None, findings: Sequence[Finding]) -> Status:
    """Of a job or a check that a signal ended: a fault where the verdict was proven, never healthy.

    Args:
        verdict: the one that stood, or the best explanation of a wait.
        findings: that it was chosen from; a wait's is a warning.
    """
    is_proven = any(is_error(f) for f in findings if verdict is not None and f.code == verdict.code)
    return Status.FAULT if is_proven else Status.INTERRUPTED


def verdict_of(findings: Sequence[Finding], *, now: datetime, visible_since: datetime | None) -> Verdict | None:
    """The first finding of at least ERROR, as `judging.engine.judge` orders them; None when there is none.

    Args:
        findings: in the order of `judge`.
        now: the moment of judging; timezone-aware.
        visible_since: when the fault could first be seen; `detect_s` counts from here.
    """
    first = next((f for f in findings if is_error(f)), None)
    detect_s = None if visible_since is None else (now - visible_since).total_seconds()
    return None if first is None else verdict_from(first, detected=now, detect_s=detect_s)


def verdict_from(finding: Finding, *, detected: datetime, detect_s: float | None) -> Verdict:
    """The verdict that a finding makes.

    Args:
        finding: the one that explains the others.
        detected: since when it stands; timezone-aware.
        detect_s: how long that was after the fault could first be seen; None where that is not known.
    """
    return Verdict(
        code=finding.code,
        fault_class=finding.fault_class,
        confidence=finding.confidence,
        culprits=finding.culprits,
        sentence=finding.message,
        remedy=finding.remedy,
        remedies=finding.remedies,
        fault_time=finding.fault_time,
        detected_time=detected.isoformat(timespec="milliseconds"),
        detect_s=None if detect_s is None else round(max(0.0, detect_s), 3),
    )


def keep_first_detection(new: Verdict | None, old: Verdict | None) -> Verdict | None:
    """The new verdict with the old one's time of detection where both accuse the same: it stood since then."""
    if new is None or old is None or (new.code, new.culprits) != (old.code, old.culprits):
        return new
    return replace(new, detected_time=old.detected_time, detect_s=old.detect_s)


def noted(notes: Sequence[Phrase | RunNote]) -> dict[str, Any]:
    """The fields of a report that have these notes."""
    found = tuple(note if isinstance(note, RunNote) else RunNote(phrase=note) for note in notes)
    return {"notes": tuple(in_english(note.phrase) for note in found), "noted": found}


class ReportBuilder:
    """Makes the reports of one command, one after another while evidence comes in.

    Args:
        command: "check", "run", "diagnose".
        started: when it began; timezone-aware.
        tool_version: of this program.
    """

    def __init__(self, *, command: str, started: datetime | None = None, tool_version: str = __version__) -> None:
        self._command = command
        self._tool_version = tool_version
        self.started = started or datetime.now(UTC)

    def duration_s(self, now: datetime) -> float:
        """How long the command has been running."""
        return round(max(0.0, (now - self.started).total_seconds()), 3)

    def build(
        self,
        *,
        now: datetime,
        world: World,
        status: Status,
        verdict: Verdict | None,
        findings: Sequence[Finding],
        not_checked: Sequence[NotChecked] = (),
        notes: Sequence[Phrase | RunNote] = (),
        **parts: Any,
    ) -> Report:
        """One report.

        Args:
            now: the moment of judging; timezone-aware.
            world: the job's members.
            status: see `status_of`.
            verdict: the finding that stands; None while nothing does.
            findings: all, in the order of the arbiter.
            not_checked: what could not be looked at.
            notes: see `Report.noted`.
            parts: further fields of `Report`, by name.
        """
        return Report(
            tool_version=self._tool_version,
            command=self._command,
            started=self.started.isoformat(timespec="milliseconds"),
            duration_s=self.duration_s(now),
            world=world,
            status=status,
            verdict=verdict,
            findings=tuple(findings),
            not_checked=tuple(not_checked),
            **noted(notes),
            **parts,
        )
