"""The last report of a job: how it ended, beside what was found."""

import logging
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from allready.judging.report_builder import noted
from allready.launch.log_relay import LAST_REPORT
from allready.model import (
    EndCause,
    Happening,
    JobOutcome,
    Phrase,
    Reason,
    Report,
    RunEvent,
    RunSummary,
    Status,
    UncheckedKind,
)
from allready.report.json_report import encode, write_atomic
from allready.text.reasons import not_checked, reason
from allready.text.run_events import say_positions

log = logging.getLogger(__name__)


def closed(report: Report, job: JobOutcome, *, notes: Sequence[Phrase] = ()) -> Report:
    """The report of a job that is over; a job that failed is never healthy.  Closing it again changes nothing."""
    if report.job is not None:
        return report
    duration_s = (datetime.now(UTC) - datetime.fromisoformat(report.started)).total_seconds()
    report = replace(report, job=job, duration_s=round(duration_s, 3), **noted((*report.noted, *notes)))
    if job.exit_code == 0 and job.outcome is EndCause.SUCCESS and report.summary is not None:
        report = replace(report, summary=_ended_well(report.summary))
    if report.status is Status.WAITING:
        return _open(report, reason(UncheckedKind.JOB_OVER))
    if report.status is Status.HEALTHY and job.outcome is EndCause.STOPPED:
        return replace(report, status=Status.INTERRUPTED)
    if report.status is Status.HEALTHY and job.exit_code != 0:
        return _open(report, reason(UncheckedKind.JOB_FAILED, exit_code=job.exit_code))
    return report


def leave_for_relay(run_dir: Path, path: Path, report: Report) -> None:
    """Write down what shall stand in `path` if this agent is killed; `launch.log_relay` puts it there.  Called before
    the report itself is written, so that neither order of a kill and a write leaves an older one.

    A report that is healthy so far, or waits, is not how a job ended whose agent was killed.
    """
    if report.status in {Status.HEALTHY, Status.WAITING}:
        report = _open(report, reason(UncheckedKind.AGENT_KILLED))
    try:
        write_atomic(run_dir / LAST_REPORT, os.fsencode(path.absolute()) + b"\n" + encode(report))
    except OSError as error:
        log.debug("no report for the case that this agent is killed: %s", error)


def _ended_well(summary: RunSummary) -> RunSummary:
    """Where ranks stood at some moment of a job is no news once all of them have come to a good end."""
    end = RunEvent(kind=Happening.ENDED_WELL, exit_code=0)
    return replace(
        summary,
        ranks=tuple(
            replace(
                row,
                end=end,
                ending="",
                activity="",
                activity_kind="",
                site="",
                positions=tuple(replace(p, waits=None) for p in row.positions),
                groups=say_positions((p for p in row.positions if p.waits is None), "en"),
            )
            for row in summary.ranks
        ),
        timeline=tuple(m for m in summary.timeline if m.event is None or m.event.kind is not Happening.WAITS),
        stacks=(),
    )


def _open(report: Report, why: Reason) -> Report:
    return replace(report, status=Status.UNKNOWN, not_checked=(not_checked("job", why), *report.not_checked))
