"""The monitor's statuses and answers as `RunEvidence`, which the rules for finished runs judge as well."""

from collections.abc import Sequence

from msgspec.structs import replace

from allready.errors import UNFORESEEN
from allready.evidence.reading import Reading
from allready.judging.assemble import assemble
from allready.judging.calls import LoggedCalls
from allready.judging.live_ends import reading_of_ends, settled, with_reported_sizes
from allready.judging.mismatch import UNMET
from allready.live.monitor.job_state import JobState
from allready.live.monitor.progress import progress_of
from allready.model import CallShift, Lag, Mismatch, Recorder, RunEvidence, World
from allready.model.events import troubled
from allready.model.fill import said

FRESH_S = 12.0
"""Answers older than this say nothing of now, but of ranks that stand where they stood; what a rank that ended had
recorded stays."""


def run_evidence_of(
    board: JobState,
    world: World,
    *,
    now: float,
    stopping_s: float | None,
    lags: Sequence[Lag],
    shift: CallShift | None,
    digests: Sequence[Mismatch],
    kept: Sequence[Mismatch],
    ends: bool,
) -> RunEvidence:
    """Join what is known now.

    Args:
        stopping_s: when the job was asked to end (wall clock), if it was.
        lags: lateness, from the operations that agents tell every second.
        shift: who is a call ahead or behind, from the same.
        digests: operations that differ by the same.
        kept: mismatches that were found before and that rings may no longer hold.
        ends: whether ends of ranks may be reported already.
    """
    nodes_of_ended = board.nodes_of_ended()
    readings = [
        reading
        for node, found in board.readings.items()
        for reading in found
        if now - board.answered[node] <= FRESH_S or node in nodes_of_ended or _is_only_of(reading, board.standing(node))
    ]
    if ends:
        readings.append(reading_of_ends(board.statuses, stopping_s=stopping_s))
    elif nodes_of_ended:
        readings = [
            replace(r, deaths=[], events=[], event_logs=[]) if r.deaths or r.events or r.event_logs else r
            for r in readings
        ]
    run = assembled(readings, board.logged)
    node_of_rank = {r.rank: n for n, s in board.statuses.items() for r in s.ranks}
    node_of_rank |= {r: n.node_rank for n in world.nodes for r in n.ranks}
    numbers = {f"node{n}": n for n in {*board.statuses, *(w.node_rank for w in world.nodes)}}
    numbers |= {s.name: n for n, s in board.statuses.items() if s.name}
    ras = tuple(p for p in run.progress if p.source == Recorder.RAS)
    flight = [p for p in run.progress if p.source == Recorder.FLIGHT]
    run = replace(
        run,
        expected_ranks=world.world_size,
        node_of_rank=dict(sorted(node_of_rank.items())),
        node_numbers=numbers,
        is_numbered=True,
        progress=(
            *progress_of(
                board.statuses, flight, world_size=world.world_size, last_marks=board.last_marks, shifts=board.shifts
            ),
            *ras,
        ),
        mismatches=_mismatches(run.mismatches, digests, kept),
        lags=tuple(lags),
        shift=shift,
        clocks=(),
        ended_well=frozenset(),
    )
    return with_reported_sizes(settled(run), [d for r in readings for d in r.dumps])


def assembled(readings: Sequence[Reading], logged: LoggedCalls) -> RunEvidence:
    """The readings put together; without what NCCL logged on any node, where that cannot be joined."""
    try:
        return assemble(readings, logged=logged)
    except UNFORESEEN as error:
        if not any(map(_is_of_nccl, readings)):
            raise
        problem = said("cannot be joined: {error}", error=f"{type(error).__name__}: {error}"[:300])
        rest = [Reading(source=troubled(r.source, problem)) if _is_of_nccl(r) else r for r in readings]
        return assemble(rest)


def _is_of_nccl(reading: Reading) -> bool:
    return bool(reading.op_streams or reading.processes)


def _is_only_of(reading: Reading, ranks: frozenset[int]) -> bool:
    """Whether it shows places and records of these ranks, and of no other."""
    shown = {s.rank for s in reading.stacks if s.role == "rank"} | {d.rank for d in reading.dumps}
    return bool(shown) and all(rank in ranks for rank in shown)


def _mismatches(
    found: Sequence[Mismatch], digests: Sequence[Mismatch], kept: Sequence[Mismatch]
) -> tuple[Mismatch, ...]:
    """Of each group the first: what rings show whole, else what was seen before, else what digests tell.

    Halves of sends and receives that are unmet now are no first of anything: each is of its own pair of ranks.
    """
    by_group: dict[str, Mismatch] = {}
    unmet = tuple(m for m in found if m.kind == UNMET)
    for mismatch in (*kept, *found):
        if mismatch.kind == UNMET:
            continue
        known = by_group.get(mismatch.group)
        if (
            known is None
            or mismatch.seq < known.seq
            or (mismatch.seq == known.seq and _weight(mismatch) > _weight(known))
        ):
            by_group[mismatch.group] = mismatch
    for digest in digests:
        if not any(m.name == digest.name and m.pair is None for m in by_group.values()):
            by_group[digest.group] = digest
    return *by_group.values(), *unmet


def _weight(mismatch: Mismatch) -> tuple[bool, int, int]:
    sites = sum(1 for o in mismatch.by_rank.values() if o.site)
    return (bool(mismatch.odd), len(mismatch.by_rank), sites)
