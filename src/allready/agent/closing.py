"""The last report of a job: how it ended, beside what was found."""

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from allready.model import JobOutcome, Reason, Report, Status, UncheckedKind
from allready.text.reasons import not_checked, reason

STOPPED = "stopped"


def closed(report: Report, job: JobOutcome, *, notes: Sequence[str] = ()) -> Report:
    """The report of a job that is over; a job that failed is never healthy.  Closing it again changes nothing."""
    if report.job is not None:
        return report
    duration_s = (datetime.now(UTC) - datetime.fromisoformat(report.started)).total_seconds()
    report = replace(report, job=job, duration_s=round(duration_s, 3), notes=(*report.notes, *notes))
    if report.status is Status.WAITING:
        return _open(report, reason(UncheckedKind.JOB_OVER))
    if report.status is Status.HEALTHY and job.outcome == STOPPED:
        return replace(report, status=Status.INTERRUPTED)
    if report.status is Status.HEALTHY and job.exit_code != 0:
        return _open(report, reason(UncheckedKind.JOB_FAILED, exit_code=job.exit_code))
    return report


def _open(report: Report, why: Reason) -> Report:
    return replace(report, status=Status.UNKNOWN, not_checked=(not_checked("job", why), *report.not_checked))
