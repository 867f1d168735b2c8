"""From findings to one status and one verdict."""

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from allready.model import Finding, NotChecked, Severity, Status, Verdict


def status_of(findings: Sequence[Finding], unchecked_necessary: Sequence[NotChecked], *, waiting: bool) -> Status:
    """One word for the whole: waiting while the job may still come together, else by the worst finding.

    Args:
        findings: of all rules.
        unchecked_necessary: what had to be looked at before "healthy" may be said, and was not.
        waiting: the roll call is still open, or a stage is still inside its deadline.
    """
    if waiting:
        return Status.WAITING
    if any(f.severity.weight >= Severity.ERROR.weight for f in findings):
        return Status.FAULT
    return Status.UNKNOWN if unchecked_necessary else Status.HEALTHY


def verdict_of(findings: Sequence[Finding], *, now: datetime, visible_since: datetime | None) -> Verdict | None:
    """The first finding of at least ERROR, as `judging.engine.judge` orders them; None when there is none.

    Args:
        findings: in the order of `judge`.
        now: the moment of judging; timezone-aware.
        visible_since: when the fault could first be seen; `detect_s` counts from here.
    """
    first = next((f for f in findings if f.severity.weight >= Severity.ERROR.weight), None)
    if first is None:
        return None
    return Verdict(
        code=first.code,
        fault_class=first.fault_class,
        confidence=first.confidence,
        culprits=first.culprits,
        sentence=first.message,
        remedy=first.remedy,
        remedies=first.remedies,
        fault_time=first.fault_time,
        detected_time=now.isoformat(timespec="milliseconds"),
        detect_s=None if visible_since is None else round(max(0.0, (now - visible_since).total_seconds()), 3),
    )


def keep_first_detection(new: Verdict | None, old: Verdict | None) -> Verdict | None:
    """The new verdict with the old one's time of detection where both accuse the same: it stood since then."""
    if new is None or old is None or (new.code, new.culprits) != (old.code, old.culprits):
        return new
    return replace(new, detected_time=old.detected_time, detect_s=old.detect_s)
