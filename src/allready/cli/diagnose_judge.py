"""Readings -> aftermath -> findings -> report: the way of `allready diagnose` once everything was read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from allready.cli.diagnose_time import Since
from allready.errors import UsageError
from allready.evidence import sniff
from allready.evidence.reading import Reading
from allready.model import Aftermath, Difference, Fleet, NotChecked, Report, Status

INAPPLICABLE = frozenset({"roll", "reach", "collectives"})
"""Parts of a job that only a live check can look at."""

INPUT = "input"
MOST_NOTES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the user wants to know of the readings.

    baseline: a good run to compare with, and what it is called.
    """

    since: Since | None = None
    ranks: frozenset[int] | None = None
    baseline: Aftermath | None = None
    baseline_name: str | None = None


def is_readable(readings: Sequence[Reading]) -> bool:
    """Whether any source was of a kind that has a reader."""
    return any(r.source.kind in sniff.READ for r in readings)


def aftermath_of(readings: Sequence[Reading], question: Question) -> Aftermath:
    """Everything joined, and cut to what was asked for.

    Raises:
        UsageError: a relative --since, and no line has a time.
    """
    from allready.evidence.join import assemble

    since_s = None
    if question.since is not None:
        end_s = max((r.source.last_time_s for r in readings if r.source.last_time_s is not None), default=None)
        since_s = question.since(end_s)
    return assemble(readings, since_s=since_s)


def judge_readings(readings: Sequence[Reading], question: Question, *, started: datetime) -> tuple[Report, Aftermath]:
    """The report, without the secrets that stood in what was read, and what it was made from (as it was read)."""
    from allready import __version__
    from allready.evidence.baseline import compare
    from allready.evidence.digest import digest
    from allready.evidence.join import only_ranks
    from allready.evidence.secrets import masked_all
    from allready.rules.engine import judge
    from allready.rules.hang._when import onset
    from allready.rules.verdict import status_of, verdict_of

    after = aftermath_of(readings, question)
    checked, refused = last_check(readings)
    fleet = fleet_of(after, checked)
    findings, unchecked = judge(fleet)
    crashed = tuple(n for n in unchecked if n.why.startswith("the rule itself failed"))
    open_questions = undecided(after, readings, checked)
    shown = after if question.ranks is None else only_ranks(after, question.ranks)
    ruins = digest(shown, onset_s=onset(after))
    if question.baseline is not None:
        good = question.baseline if question.ranks is None else only_ranks(question.baseline, question.ranks)
        differences: tuple[Difference, ...] = compare(good, shown)
        ruins = replace(ruins, differences=differences, baseline=question.baseline_name)
    now = datetime.now(UTC)
    report = Report(
        tool_version=__version__,
        command="diagnose",
        started=started.isoformat(timespec="milliseconds"),
        duration_s=round((now - started).total_seconds(), 3),
        world=fleet.world,
        status=status_of(findings, (*open_questions, *crashed), waiting=False),
        verdict=verdict_of(findings, now=now, visible_since=None),
        findings=findings,
        not_checked=(*open_questions, *unchecked),
        ruins=ruins,
        notes=(*notes(readings), *refused, *after.notes[:MOST_NOTES]),
    )
    return masked_all(report), after


def last_check(readings: Sequence[Reading]) -> tuple[Report | None, tuple[str, ...]]:
    """The newest report of `allready check` in the input, and why others could not be used."""
    from allready.report.json_report import decode

    found: list[Report] = []
    refused = []
    for reading in readings:
        for text in reading.reports:
            try:
                report = decode(text.encode("utf-8", "replace"))
            except UsageError as error:
                refused.append(f"{reading.source.path}: {error}")
                continue
            if report.command == "check":
                found.append(report)
            else:
                refused.append(f"{reading.source.path}: a report of `allready {report.command}`; its inputs tell more")
    return max(found, key=lambda r: r.started, default=None), tuple(refused[:MOST_NOTES])


def fleet_of(after: Aftermath, checked: Report | None) -> Fleet:
    """The evidence that rules judge: what the run left, and what a check before it had found."""
    from allready.evidence.join import world_of
    from allready.facts.saved import fleet_from_report

    if checked is None:
        return Fleet(world=world_of(after), aftermath=after, inapplicable=INAPPLICABLE)
    world = world_of(after)
    before = fleet_from_report(checked)
    return replace(before, world=world if world.nodes else checked.world, aftermath=after)


def undecided(after: Aftermath, readings: Sequence[Reading], checked: Report | None = None) -> tuple[NotChecked, ...]:
    """Why "healthy" may not be said: nothing decisive was found.

    Decisive is that every expected rank says that it ended well.  That all operations in all dumps are complete is not:
    a dump is a moment, and a rank can be stuck outside of them.
    """
    if not is_readable(readings):
        return (
            NotChecked(code=INPUT, node=None, why="nothing in the input is a log, a dump, a stack or an answer of RAS"),
        )
    expected = after.expected_ranks
    if expected and len(after.ended_well) >= expected:
        return ()
    if checked is not None and all(r.source.kind in {sniff.REPORT, *sniff.PASSED_OVER} for r in readings):
        return () if checked.status is Status.HEALTHY else _open_in(checked)
    if expected and after.ended_well:
        missing = expected - len(after.ended_well)
        why = f"{missing} of {expected} ranks do not say how they ended"
    else:
        why = "nothing read says how the run ended"
    return (NotChecked(code=INPUT, node=None, why=why),)


def _open_in(checked: Report) -> tuple[NotChecked, ...]:
    why = f"the check itself ended {checked.status}"
    return (NotChecked(code=INPUT, node=None, why=why),)


def notes(readings: Sequence[Reading]) -> list[str]:
    """What could not be read, or only in part, in the order of the input."""
    told = [f"{r.source.path}: {r.source.problem}" for r in readings if r.source.problem]
    more = len(told) - MOST_NOTES
    return told if more <= 0 else [*told[:MOST_NOTES], f"and {more:,} more sources that could not be read whole"]
