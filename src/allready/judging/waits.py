"""Who waits for whom: set logic over how far each rank came in each group.

A rank that is in operation k of a group waits for the members that have not enqueued k.  Ranks that others wait for
and that wait for no rank are the ones to look at; ranks that wait for each other in a circle took their groups in
different orders.  A rank of which this kind of evidence shows nothing counts as waited for, since it may be anywhere.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from allready.evidence.operation_names import SYNCHRONISING
from allready.judging.analysis import Analysis
from allready.judging.run_signs import has_stopped
from allready.judging.stated import stated
from allready.model import Absence, Evidence, GroupProgress, Operation, Position, Recorder, clock_time

MAX_AHEAD = 1_000
"""No rank gets so far ahead of an operation that does not end: CUDA's queues are full before.  Numbers that are further
apart are those of several groups whose lines do not tell them apart."""

TOGETHER = {*SYNCHRONISING, ""}
"""Those that end for no member before all have come, as one that is not known may be."""
TORCH = (Recorder.FLIGHT, Recorder.WATCHDOG)
"""These two number operations alike, so that one fills the other's gaps."""


class Wait(Struct, frozen=True, kw_only=True):
    """Some members of a group wait in an operation for others."""

    progress: GroupProgress
    operation: Operation
    waiting: tuple[int, ...]
    behind: tuple[int, ...]  # known to be behind
    unseen: tuple[int, ...]  # nothing known
    elsewhere: Mapping[int, Operation] = {}  # gave up in an earlier operation of the group
    why_unseen: Mapping[int, Absence] = {}

    @property
    def source(self) -> Recorder:
        """The kind of evidence that shows it."""
        return self.progress.source

    @property
    def called(self) -> str:
        """The group, for a reader."""
        return self.progress.label or self.progress.group


class WaitSnapshot(Struct, frozen=True, kw_only=True):
    """What one kind of evidence says of the whole job.

    `roots`: waited for, waiting for no rank.  `unseen`: those of them of which nothing is known.  `cycle`: ranks that
    wait for each other, one after the other; `knot`: all that are waited for by those for whom they wait.
    `level`: groups in which all ranks are in the same unfinished operation.
    """

    source: Recorder
    waits: tuple[Wait, ...] = ()
    roots: tuple[int, ...] = ()
    unseen: tuple[int, ...] = ()
    cycle: tuple[int, ...] = ()
    knot: tuple[int, ...] = ()
    level: tuple[Wait, ...] = ()
    frozen: bool = False

    def waits_for(self, rank: int) -> tuple[Wait, ...]:
        """The waits in which `rank` is missed."""
        return tuple(w for w in self.waits if rank in w.behind or rank in w.unseen)


def snapshots(case: Analysis) -> tuple[WaitSnapshot, ...]:
    """One for each kind of evidence, the most telling first: torch's records, RAS, counted log lines.

    Of a running job only the recorders' numbers, which agents complete every second, are of now.
    """
    run = case.run
    if case.live is not None:
        marks = [p for p in run.progress if p.source == Recorder.FLIGHT]
        now = snapshot_of(Recorder.TORCH, marks, is_still=False)
        return (now,) if now is not None else ()
    torch = _combined([p for p in run.progress if p.source in TORCH])
    ras = [_with_pending(p) for p in run.progress if p.source == Recorder.RAS]
    logs = [_with_pending(_of_those_given(p)) for p in run.progress if p.source == Recorder.COLL_LOG]
    found = (
        snapshot_of(Recorder.TORCH, torch, is_still=case.of(has_stopped)),
        snapshot_of(Recorder.RAS, ras),
        snapshot_of(Recorder.COLL_LOG, logs),
    )
    return tuple(s for s in found if s is not None)


def _combined(progress: Sequence[GroupProgress]) -> list[GroupProgress]:
    """Flight-recorder groups, completed by what the watchdog's lines say of ranks that left no dump."""
    dumps = [p for p in progress if p.source == Recorder.FLIGHT]
    spoken = [p for p in progress if p.source == Recorder.WATCHDOG]
    combined = []
    for group in dumps:
        stated = next((w for w in spoken if _same_group(group, w)), None)
        if stated is not None:
            more = {r: p for r, p in stated.positions.items() if r not in group.positions and _fits(group, r)}
            group = replace(
                group,
                positions={**group.positions, **more},
                absent={r: why for r, why in group.absent.items() if r not in more},
                label=group.label or stated.label,
            )
        combined.append(group)
    # Without dumps a group's members are those that spoke; the world's are all ranks.
    combined += [w for w in spoken if not any(_same_group(d, w) for d in dumps)]
    return [_with_names(g) for g in combined]


def _with_names(group: GroupProgress) -> GroupProgress:
    """A position that knows only a number gets the operation's name from a member that knows more."""
    known = {p.stuck.seq: p.stuck for p in group.positions.values() if p.stuck is not None and p.stuck.name}
    return replace(
        group,
        positions={
            r: replace(p, stuck=known[p.stuck.seq])
            if p.stuck is not None and not p.stuck.name and p.stuck.seq in known
            else p
            for r, p in group.positions.items()
        },
    )


def _same_group(a: GroupProgress, b: GroupProgress) -> bool:
    if a.group == b.group:
        return not (a.label and b.label and a.label != b.label)
    return bool(a.label) and a.label == b.label == "default_pg"


def _fits(group: GroupProgress, rank: int) -> bool:
    return not group.members or rank in group.members


def _of_those_given(group: GroupProgress) -> GroupProgress:
    """Logs that were not given say nothing: a member without one is no silent member."""
    return replace(group, members=tuple(sorted(group.positions)), absent={})


def _with_pending(group: GroupProgress) -> GroupProgress:
    """For sources that count launches only: a rank that is ahead of another is taken to be in its last operation."""
    counts = [p.enqueued for p in group.positions.values()]
    if not counts or (min(counts) == max(counts) and not group.absent):
        return group
    top = max(counts)
    kind = _kind_that_differs(list(group.positions.values()))

    def pending(position: Position) -> Operation | None:
        if position.enqueued < top:
            return None
        return position.last or Operation(seq=top, name=kind)

    return replace(group, positions={r: replace(p, stuck=p.stuck or pending(p)) for r, p in group.positions.items()})


def _kind_that_differs(positions: Sequence[Position]) -> str:
    """The only kind of operation of which one rank launched more than another; "" where there is none, or several."""
    kinds = {kind for p in positions for kind in p.counts}
    different = [k for k in kinds if len({p.counts.get(k) for p in positions}) > 1]
    return different[0] if len(different) == 1 and all(different[0] in p.counts for p in positions) else ""


def snapshot_of(source: Recorder, groups: Sequence[GroupProgress], *, is_still: bool = True) -> WaitSnapshot | None:
    """Who waits for whom by one kind of evidence; None where it tells of no group."""
    if not groups:
        return None
    every = [wait for group in groups for wait in _waits_in(group)]
    waits = sorted((wait for wait in every if wait.behind or wait.unseen), key=lambda w: -len(w.waiting))
    waiting_for = awaited(waits)
    missed = {r for wait in waits for r in (*wait.behind, *wait.unseen)}
    # Who waits in a group that no line names waits all the same, perhaps in the very operation where it is missed.
    waiting_somewhere = {r for wait in every if not wait.progress.is_named for r in wait.waiting}
    roots = sorted(r for r in missed if r not in waiting_for and r not in waiting_somewhere)
    seen = {r for g in groups for r in g.positions}
    cycle = () if roots else cycle_of(waiting_for)
    return WaitSnapshot(
        source=source,
        waits=tuple(waits),
        roots=tuple(roots),
        unseen=tuple(r for r in roots if r not in seen),
        cycle=cycle,
        knot=_knot_of(waiting_for, cycle),
        level=tuple(wait for wait in every if not (wait.behind or wait.unseen)),
        frozen=is_still and all(g.complete for g in groups),
    )


def _waits_in(group: GroupProgress) -> list[Wait]:
    """One for each operation that a member is in, the latest first.

    In rooted operations some leave before others have come, so that members are in several of them at once.  An
    operation that a member gave up and none came through is the one that all wait in, whatever number errors left
    behind; who gave up in an earlier one than that did not stay away: it was waiting, too.
    """
    pending = {r: p.stuck for r, p in group.positions.items() if p.stuck is not None}
    if not pending:
        return []
    latest = max(pending.values(), key=lambda o: o.seq)
    latest = _given_up(group, latest.seq) or latest
    elsewhere = {r: o for r, o in pending.items() if o.seq < latest.seq and group.positions[r].gave_up}
    inside: dict[int, list[int]] = {latest.seq: []}
    for rank, position in group.positions.items():
        # Gloo retires failed operations too; but no rank gets through one that needs all while some are missed.
        is_through = latest.name not in TOGETHER and (position.completed or 0) >= latest.seq
        is_in_latest = position.enqueued >= latest.seq and not is_through
        if rank not in elsewhere and (rank in pending or is_in_latest):
            seq = pending[rank].seq if rank in pending else latest.seq
            inside.setdefault(min(seq, latest.seq), []).append(rank)
    return [
        _wait_in(group, seq, pending.values(), inside[seq], elsewhere, is_latest=seq == latest.seq)
        for seq in sorted(inside, reverse=True)
    ]


def _wait_in(
    group: GroupProgress,
    seq: int,
    pending: Iterable[Operation],
    waiting: Iterable[int],
    elsewhere: Mapping[int, Operation],
    *,
    is_latest: bool,
) -> Wait:
    here = [o for o in pending if o.seq == seq]
    operation = next((o for o in here if o.name), here[0])
    unseen = tuple(r for r in group.parties if r not in group.positions)
    if not is_latest and operation.name in TOGETHER:
        # Others went on from it, so that all have come.  Who still waits may wait for one of which little is known.
        unseen = tuple(r for r in unseen if group.absent.get(r) is Absence.OUTDATED)
    behind = (r for r, p in group.positions.items() if p.enqueued < seq and r not in elsewhere)
    return Wait(
        progress=group,
        operation=operation,
        waiting=tuple(sorted(waiting)),
        behind=tuple(sorted(behind)),
        unseen=unseen,
        elsewhere=elsewhere if is_latest else {},
        why_unseen={r: group.absent.get(r, Absence.NO_DATA) for r in unseen},
    )


def _given_up(group: GroupProgress, latest: int) -> Operation | None:
    """The first operation that a member waited a whole time-out in and that no member is known to have completed."""
    through = max((p.completed for p in group.positions.values() if p.completed is not None), default=0)
    given_up = [p.stuck for p in group.positions.values() if p.stuck is not None and p.gave_up]
    found = [o for o in given_up if o.seq > through and latest - o.seq < MAX_AHEAD]
    return min(found, key=lambda o: o.seq, default=None)


def awaited(waits: Iterable[Wait]) -> dict[int, set[int]]:
    """Rank -> for whom it waits."""
    found: dict[int, set[int]] = {}
    for wait in waits:
        for rank in wait.waiting:
            found.setdefault(rank, set()).update(wait.behind, wait.unseen)
    return found


def cycle_of(waiting_for: Mapping[int, Iterable[int]]) -> tuple[int, ...]:
    """The ranks on one circle of waits, shortest walk from the lowest rank; empty when there is none."""
    for start in sorted(waiting_for):
        path = [start]
        while True:
            following = sorted(waiting_for.get(path[-1], ()))
            if not following:
                break
            if following[0] in path:
                return tuple(path[path.index(following[0]) :])
            path.append(following[0])
    return ()


def _knot_of(waiting_for: Mapping[int, Iterable[int]], cycle: Sequence[int]) -> tuple[int, ...]:
    """All that are waited for, over others as well, by those for whom they wait: none of them is more to blame than
    the few on one circle."""
    if not cycle:
        return ()
    backwards: dict[int, list[int]] = {}
    for rank, missed in waiting_for.items():
        for other in missed:
            backwards.setdefault(other, []).append(rank)
    return tuple(sorted(reached_from(waiting_for, cycle[0]) & reached_from(backwards, cycle[0])))


def reached_from(following: Mapping[int, Iterable[int]], start: int) -> set[int]:
    """A rank and all for whom it waits, over others as well."""
    found, ahead = {start}, [start]
    while ahead:
        fresh = set(following.get(ahead.pop(), ())) - found
        found |= fresh
        ahead += fresh
    return found


def positions(snapshot: WaitSnapshot, shown: Sequence[int]) -> tuple[Evidence, ...]:
    """How far ranks came, as evidence."""
    found = []
    for wait in snapshot.waits[:4]:
        for rank in (*shown, *wait.waiting[:3]):
            position = wait.progress.positions.get(rank)
            name = wait.called
            if position is None:
                why = wait.why_unseen.get(rank)
                if why is not None:
                    found.append(
                        stated(wait.source, "rank {rank}, group {group}: {why}", rank=rank, group=name, why=why)
                    )
                continue
            found.append(
                stated(
                    str(position.origin) if position.origin else wait.source,
                    "rank {rank}, group {group}: last enqueued {enqueued}[[, last completed {completed}]]"
                    "[[, not completed: {stuck}]]",
                    time=clock_time(position.time_s),
                    rank=rank,
                    group=name,
                    enqueued=position.enqueued,
                    completed=position.completed,
                    stuck=position.stuck.numbered if position.stuck else None,
                )
            )
    return tuple({(e.source, e.text, e.time): e for e in found}.values())[:8]
