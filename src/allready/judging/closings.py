"""Whether the job came to its own end, by how its logs end and by everything that contradicts it."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from allready.evidence.join.identity import Identities
from allready.evidence.reading import RasAnswer
from allready.model import Closing, ClosingKind, Death, Event, ProcessRecord, Role
from allready.signatures import load

ENDED_BY = {"elastic.death_signal", "launcher.slurm_cancelled", "launcher.slurm_time_limit"}
"""Lines of launchers that tell of an end, and do not call it a good one."""


def overruled(deaths: Sequence[Death], closings: Iterable[Closing]) -> tuple[Death, ...]:
    """The deaths, those marked as earlier that the same log went on after, to its own end.

    A job script runs more than its ranks: a helper or a warm-up that failed has not ended the job where epochs or
    steps were counted after it.  Words alone do not tell: a script says that it is done whatever came before.
    """
    ends = {closing.origin.source: closing for closing in closings}
    return tuple(
        replace(death, earlier=True)
        if (end := ends.get(death.origin.source)) is not None and end.is_good and _went_on(end, death.origin.line)
        else death
        for death in deaths
    )


def job_closing(
    closings: Sequence[Closing], deaths: Sequence[Death], events: Sequence[Event], identities: Identities
) -> Closing | None:
    """The end that stands for the whole job, or None.

    Every log must have a good end or say nothing of the job's course; every rank that has a log of its own must have
    one there.  A death, an error or an end by a launcher that no progress followed contradicts.  A launcher's record of
    the exit codes needs no words of the ranks; only a death contradicts it.
    """
    record = next((closing for closing in closings if closing.kind is ClosingKind.RECORD), None)
    if record is not None and all(death.earlier for death in deaths):
        return record
    good = [closing for closing in closings if closing.is_good]
    if not good or not _all_tell(closings) or _is_torn_down_in_part(identities.processes):
        return None
    if any(not death.earlier for death in deaths) or any(_contradicts(event, closings) for event in events):
        return None
    return max(good, key=lambda one: (one.is_certain, one.kind is ClosingKind.WORDS, one.origin.rank in (None, 0)))


def is_denied(closing: Closing, answers: Sequence[RasAnswer], last_times_s: Mapping[str, float | None]) -> bool:
    """Whether RAS found ranks of one communicator at different operations after these words, or at no known time: then
    they are of a program beside the job, or of an earlier run.  A launcher's record knows the exit codes.
    """
    if closing.kind is ClosingKind.RECORD:
        return False
    said_s = last_times_s.get(closing.origin.source)
    return any(
        said_s is None or answer.time_s is None or answer.time_s > said_s
        for answer in answers
        if any(len({position.enqueued for position in group.positions.values()}) > 1 for group in answer.groups)
    )


def _all_tell(closings: Sequence[Closing]) -> bool:
    ended_well = {closing.origin.rank for closing in closings if closing.is_good}
    return all(
        closing.is_good
        or (
            closing.kind is ClosingKind.OPEN
            and closing.progress_line is None
            and (closing.origin.rank is None or closing.origin.rank in ended_well)
        )
        for closing in closings
    )


def _is_torn_down_in_part(processes: Sequence[ProcessRecord]) -> bool:
    """Whether some ranks left their communicators, or began them, and others did not come so far.

    Old torch aborts them also at a good end, when its process groups are destructed.
    """
    comms = [process.comms for process in processes if process.comms]
    has_left = [any(c.destroyed or c.aborted for c in of_one) for of_one in comms]
    waits = any(c.init_started and not c.init_completed for of_one in comms for c in of_one)
    return waits or (any(has_left) and not all(has_left))


def _contradicts(event: Event, closings: Sequence[Closing]) -> bool:
    signature = load().get(event.signature)
    if signature is None or signature.family == "kernel":
        return False
    is_grave = signature.severity.is_fault and event.role in {Role.ROOT, Role.CASCADE}
    if not is_grave and event.signature not in ENDED_BY:
        return False
    return not any(one.origin.source == event.origin.source and _went_on(one, event.origin.line) for one in closings)


def _went_on(closing: Closing, line: int | None) -> bool:
    """Whether progress was made after this line, and the log's end came after that."""
    return line is not None and closing.progress_line is not None and line < closing.progress_line
