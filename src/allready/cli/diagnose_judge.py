"""Readings -> run evidence -> findings -> report: the way of `allready diagnose` once everything was read."""

import zlib
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from allready.cli.diagnose_time import Since
from allready.errors import UsageError
from allready.evidence import sniff
from allready.evidence.reading import Reading
from allready.json_bounds import memory_bytes
from allready.judging.closings import ENDED_BY
from allready.judging.loading import load, load_for
from allready.model import (
    Closing,
    ClosingKind,
    Difference,
    Fleet,
    NotChecked,
    Phrase,
    Report,
    RunEvidence,
    Status,
    UncheckedKind,
)
from allready.model.fill import phrase_of, said
from allready.model.fleet import OF_A_CHECK
from allready.text.reasons import not_checked, reason

INPUT = "input"
MAX_NOTES = 50
MAX_REPORTS_MEMORY_BYTES = 160 << 20
"""What the saved reports in the input may take together."""

_TOO_MUCH = "{source}: with the reports before it, it would take too much memory"
_INPUTS = "{source}: a report of `allready {command}`; its inputs tell more"
_EARLIER = "{num} reports of earlier `allready run` in the input are not judged"
_MORE_SOURCES = "and {num} more sources that could not be read whole"


class Question(Struct, frozen=True, kw_only=True):
    """What the user wants to know of the readings.

    baseline: a good run to compare with, and what it is called.
    """

    since: Since | None = None
    ranks: frozenset[int] | None = None
    baseline: RunEvidence | None = None
    baseline_name: str | None = None


def is_readable(readings: Sequence[Reading]) -> bool:
    """Whether any source was of a kind that has a reader."""
    return any(r.source.kind in sniff.READ for r in readings)


def run_evidence_of(readings: Sequence[Reading], question: Question) -> RunEvidence:
    """Everything joined, and cut to what was asked for."""
    from allready.judging.assemble import assemble

    since_s = None
    if question.since is not None:
        end_s = max((r.source.last_time_s for r in readings if r.source.last_time_s is not None), default=None)
        since_s = question.since(end_s)
    return assemble(readings, since_s=since_s)


def judge_readings(readings: Sequence[Reading], question: Question, *, started: datetime) -> tuple[Report, RunEvidence]:
    """The report, without the secrets that stood in what was read, and what it was made from (as it was read)."""
    from allready.evidence.digest import digest
    from allready.judging.assemble import only_ranks
    from allready.judging.baseline import compare
    from allready.judging.conclude import Known, conclude
    from allready.judging.engine import crashed, judge
    from allready.judging.report_builder import ReportBuilder, status_of
    from allready.judging.run_signs import onset
    from allready.redaction import masked_all

    run_evidence = run_evidence_of(readings, question)
    saved = saved_reports(readings)
    fleet = fleet_of(run_evidence, saved.check)
    rules = load() if saved.runs else load_for(fleet)
    found, unchecked = judge(fleet, rules.values())
    now = datetime.now(UTC)
    watched = saved.runs if question.since is None else ()
    done = conclude(found, Known(rules=rules, now=now, watched=watched, run=run_evidence))
    open_questions = undecided(run_evidence, readings, saved, is_fault=done.verdict is not None)
    shown = run_evidence if question.ranks is None else only_ranks(run_evidence, question.ranks)
    summary = digest(shown, onset_s=onset(run_evidence))
    if question.baseline is not None:
        good = question.baseline if question.ranks is None else only_ranks(question.baseline, question.ranks)
        differences: tuple[Difference, ...] = compare(good, shown)
        summary = replace(summary, differences=differences, baseline=question.baseline_name)
    job = saved.runs[0] if saved.runs else None
    report = ReportBuilder(command="diagnose", started=started).build(
        now=now,
        world=fleet.world if fleet.world.world_size or job is None else job.world,
        course=job.course if job is not None else None,
        status=status_of(done.findings, (*open_questions, *crashed(unchecked)), waiting=False),
        verdict=done.verdict,
        findings=done.findings,
        not_checked=(*open_questions, *unseen_speed(run_evidence), *unchecked),
        summary=summary,
        notes=(*notes(readings), *saved.refused, *run_evidence.notes[:MAX_NOTES]),
    )
    return masked_all(report), run_evidence


class Saved(Struct, frozen=True, kw_only=True):
    """Reports in the input.  check: the newest of `allready check`.  runs: those of one `allready run`, node 0's first
    where it is there; several nodes of a job write one each.  refused: why others could not be used."""

    check: Report | None = None
    runs: tuple[Report, ...] = ()
    refused: tuple[Phrase, ...] = ()

    @property
    def has_ended_well(self) -> bool:
        """Whether the run itself says so.  Only of a job that is over it tells the ranks' ends."""
        return bool(self.runs) and all(r.status is Status.HEALTHY and r.summary is not None for r in self.runs)


def saved_reports(readings: Sequence[Reading]) -> Saved:
    """What `check` and `run` had reported, as far as the input has it."""
    from allready.report.json_report import decode

    checks: list[Report] = []
    runs: list[Report] = []
    refused: list[Phrase] = []
    left_bytes = MAX_REPORTS_MEMORY_BYTES
    for reading in readings:
        for packed in reading.reports:
            text = zlib.decompress(packed)
            needs_bytes = memory_bytes(text)
            if needs_bytes > left_bytes:
                refused.append(said(_TOO_MUCH, source=reading.source.path))
                continue
            left_bytes -= needs_bytes
            try:
                report = decode(text)
            except UsageError as error:
                refused.append(said("{source}: {why}", source=reading.source.path, why=phrase_of(error)))
                continue
            if report.command == "check":
                checks.append(report)
            elif report.command == "run":
                runs.append(report)
            else:
                refused.append(said(_INPUTS, source=reading.source.path, command=report.command))
    newest = max(runs, key=_end_s, default=None)
    job = [r for r in runs if newest is not None and _end_s(r) >= _start_s(newest) and _start_s(r) <= _end_s(newest)]
    if len(job) < len(runs):
        refused.append(said(_EARLIER, num=len(runs) - len(job)))
    return Saved(
        check=max(checks, key=lambda r: r.started, default=None),
        runs=tuple(sorted(job, key=lambda r: (-len(r.world.nodes), r.started))),
        refused=tuple(refused[:MAX_NOTES]),
    )


def _start_s(report: Report) -> float:
    try:
        return datetime.fromisoformat(report.started).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _end_s(report: Report) -> float:
    return _start_s(report) + report.duration_s


def fleet_of(run_evidence: RunEvidence, checked: Report | None) -> Fleet:
    """The evidence that rules judge: what the run left, and what a check before it had found."""
    from allready.facts.exchange import fleet_from_report
    from allready.judging.assemble import world_of

    agreed = run_evidence.runtime[-1] if run_evidence.runtime else None
    if checked is None:
        return Fleet(world=world_of(run_evidence), run_evidence=run_evidence, runtime=agreed, inapplicable=OF_A_CHECK)
    world = world_of(run_evidence)
    world = world if any(n.ranks for n in world.nodes) else checked.world
    return replace(fleet_from_report(checked), world=world, run_evidence=run_evidence, runtime=agreed)


def undecided(
    run_evidence: RunEvidence, readings: Sequence[Reading], saved: Saved, *, is_fault: bool
) -> tuple[NotChecked, ...]:
    """Why "healthy" may not be reported: nothing decisive was found.

    Decisive is that every expected rank says that it ended well, or `allready run` that its job did.  That all
    operations in all dumps are complete is not: a dump is a moment, and a rank can be stuck outside of them.
    """
    if not is_readable(readings):
        return (not_checked(INPUT, reason(UncheckedKind.INPUT_UNREADABLE)),)
    expected, checked = run_evidence.expected_ranks, saved.check
    if saved.has_ended_well and expected in {0, saved.runs[0].world.world_size}:  # else the logs are of another job
        return ()
    if run_evidence.closing is not None or (expected and len(run_evidence.ended_well) >= expected):
        return ()
    if checked is not None and all(r.source.kind in {sniff.REPORT, *sniff.PASSED_OVER} for r in readings):
        return () if checked.status is Status.HEALTHY else _open_in(checked)
    if expected and run_evidence.ended_well:
        missing = expected - len(run_evidence.ended_well)
        why = reason(UncheckedKind.ENDS_MISSING, missing=missing, expected=expected)
    elif (midway := _stopped_midway(run_evidence)) is not None:
        where = f"{midway.origin.source}:{midway.origin.line}"
        why = reason(UncheckedKind.STOPPED_MIDWAY, done=midway.done, total=midway.total, where=where)
    elif run_evidence.deaths or any(e.signature in ENDED_BY for e in run_evidence.events):
        if is_fault:
            return ()  # that it did not end well, the verdict says
        why = reason(UncheckedKind.NOT_ENDED_WELL)
    elif (counted := _unannounced(run_evidence)) is not None:
        where = f"{counted.origin.source}:{counted.progress_line}"
        why = reason(UncheckedKind.END_UNANNOUNCED, done=counted.done, where=where)
    else:
        why = reason(UncheckedKind.END_UNKNOWN)
    return (not_checked(INPUT, why),)


def _stopped_midway(run_evidence: RunEvidence) -> Closing | None:
    """The log that stops with the least of its progress done."""
    midway = [c for c in run_evidence.closings if c.kind is ClosingKind.MIDWAY and c.total]
    return min(midway, key=lambda c: (c.done or 0) / (c.total or 1), default=None)


def _unannounced(run_evidence: RunEvidence) -> Closing | None:
    """The log that counts the least without saying how far."""
    opened = [c for c in run_evidence.closings if c.kind is ClosingKind.OPEN and c.done is not None and c.progress_line]
    return min(opened, key=lambda c: c.done or 0, default=None)


def unseen_speed(run_evidence: RunEvidence) -> tuple[NotChecked, ...]:
    """Why a slow rank would not show here: operations were counted, and none has a time."""
    is_timed = any(q.time_s is not None for p in run_evidence.progress for q in p.positions.values())
    if run_evidence.lags or is_timed or not any(p.op_counts for p in run_evidence.processes):
        return ()
    from allready.rules.slow.always_last import always_last

    return (not_checked(always_last.code, reason(UncheckedKind.NO_TIMES)),)


def _open_in(checked: Report) -> tuple[NotChecked, ...]:
    return (not_checked(INPUT, reason(UncheckedKind.CHECK_ENDED, status=checked.status)),)


def notes(readings: Sequence[Reading]) -> list[Phrase]:
    """What could not be read, or only in part, in the order of the input."""
    bad = [r.source for r in readings if r.source.problem]
    found = [said("{source}: {why}", source=s.path, why=s.problems or s.problem) for s in bad[:MAX_NOTES]]
    more = len(bad) - len(found)
    return [*found, said(_MORE_SOURCES, num=f"{more:,}")] if more else found
