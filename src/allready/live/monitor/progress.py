"""How far every rank came by its newest word, completed by what the recorders' rings say of the operations."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from allready.evidence.flight.names import is_hooked
from allready.model import (
    Absence,
    GroupMark,
    GroupProgress,
    NodeStatus,
    Operation,
    Position,
    ProcessState,
    RankStatus,
    Recorder,
)
from allready.model.live import WORLD, outsiders
from allready.patterns import compiled

MUTE_S = 0.8
TAIL_CHARS = 200_000
_NUMBERS = (
    r'"collective_seq_id":(\d{1,15}),[^{}]{0,2000}?"op_id":(\d{1,15}),[^{}]{0,2000}?"process_group":\["([^"]{0,200})"'
    r'[^{}]{0,200}?"profiling_name":"([^":]{1,60}):'
)


def shifts_of(ring: str) -> dict[str, int]:
    """By group, by how much the count of operations is ahead of that of collectives; 0 without sends.

    The counts in a cell are of all operations, sends and receives as well, and these differ from rank to rank, where
    Gloo or a hook of torch writes the recorder; entries of the ring have both numbers.
    """
    return {
        name: int(number) + is_hooked(backend) - int(seq)
        for seq, number, name, backend in compiled(_NUMBERS).findall(ring[-TAIL_CHARS:])
        if backend == "gloo" or is_hooked(backend)
    }


def progress_of(
    statuses: Mapping[int, NodeStatus],
    flight: Sequence[GroupProgress],
    *,
    world_size: int,
    last_marks: Mapping[int, tuple[GroupMark, ...]] | None = None,
    shifts: Mapping[int, Mapping[str, int]] | None = None,
) -> tuple[GroupProgress, ...]:
    """One `GroupProgress` per group that any rank speaks of; numbers from marks, names and places from rings.

    Args:
        flight: the join of the rings that were gathered; older than the marks or newer.
        last_marks: rank -> what it reported last of its groups, if it says nothing now.
        shifts: rank -> group -> see `shifts_of`.
    """
    marks: dict[tuple[str, tuple[int, ...]], dict[int, tuple[GroupMark, float]]] = {}
    joined: set[int] = set()
    outside = outsiders(statuses)
    lost = {r.rank for s in statuses.values() for r in s.ranks if r.has_lost_beacon}
    mute = {r.rank for s in statuses.values() for r in s.ranks if _is_mute(r)}
    for status in statuses.values():
        for rank in status.ranks:
            if rank.rank in outside | lost:
                continue  # what it waited in is over
            for mark in rank.groups or (last_marks or {}).get(rank.rank, ()):
                joined.add(rank.rank)
                key = (mark.group, _members(mark, world_size))
                marks.setdefault(key, {})[rank.rank] = (mark, status.by_node_0(status.time_s))
    found = [
        _group(
            name, members, reported, flight, joined, {r: s.get(name, 0) for r, s in (shifts or {}).items()}, mute, lost
        )
        for (name, members), reported in sorted(marks.items(), key=lambda item: item[0][0])
    ]
    known = {(g.group, g.members) for g in found}
    named = {g.group for g in found}
    gone = {r.rank for s in statuses.values() for r in s.ranks if r.is_gone}
    return (
        *found,
        *(g for g in flight if g.pair is not None and (g.group, g.members) not in known),  # marks say nothing of them
        # A job may be over before its ranks' first word; what they recorded at their end is all that there is.
        *(g for g in flight if g.pair is None and set(g.positions) <= gone and g.name not in named),
    )


def _members(mark: GroupMark, world_size: int) -> tuple[int, ...]:
    if mark.members:
        return mark.members
    return tuple(range(world_size)) if mark.label == WORLD else ()


def _group(
    name: str,
    members: tuple[int, ...],
    reported: Mapping[int, tuple[GroupMark, float]],
    flight: Sequence[GroupProgress],
    joined: set[int],
    shifts: Mapping[int, int],
    mute: set[int],
    lost: set[int],
) -> GroupProgress:
    ring = next((g for g in flight if _is_same(g, name, members)), None)
    names = _operations(ring)
    positions = {r: _position(r, mark, now_s, ring, names) for r, (mark, now_s) in sorted(reported.items())}
    if any(shifts.get(r) for r in reported):  # counts of all operations: only the rings number collectives
        for rank, (mark, _) in reported.items():
            recorded = ring.positions.get(rank) if ring is not None else None
            enqueued = mark.enqueued - shifts.get(rank, 0)
            positions[rank] = recorded or Position(enqueued=enqueued, completed=enqueued, time_s=mark.moved_s)
    _forget_stale(positions, mute)
    absent: dict[int, Absence] = {}
    for rank in members:
        if rank in positions:
            continue
        if ring is not None and rank in ring.positions:  # it was through before its first word
            positions[rank] = ring.positions[rank]
        elif rank in joined:  # a member that has not used the group
            positions[rank] = Position(enqueued=0, completed=0)
        else:
            absent[rank] = Absence.NO_DATA if rank in lost else Absence.NOT_JOINED
    label = next((m.label for m, _ in reported.values() if m.label), "")
    return GroupProgress(
        group=name,
        source=Recorder.FLIGHT,
        label=label,
        members=members,
        size=len(members) or len(positions),
        positions=dict(sorted(positions.items())),
        absent=absent,
        complete=False,
        origin=ring.origin if ring is not None else None,
    )


def _is_mute(rank: RankStatus) -> bool:
    """Its last message may be from any moment before it fell silent."""
    return rank.process_state not in ProcessState.ABLE or (rank.heartbeat_age_s or 0.0) > MUTE_S


def _forget_stale(positions: dict[int, Position], mute: set[int]) -> None:
    """An operation that a silent rank was in when it spoke last, and that others have got through, it is not in now."""
    done = max((p.completed or 0 for r, p in positions.items() if r not in mute), default=0)
    for rank in mute & positions.keys():
        position = positions[rank]
        if position.stuck is not None and position.stuck.seq <= done:
            positions[rank] = replace(position, stuck=None, completed=position.enqueued)


def _is_same(group: GroupProgress, name: str, members: tuple[int, ...]) -> bool:
    if group.name != name or group.pair is not None:
        return False
    return not members or not group.members or tuple(group.members) == members or set(group.positions) <= set(members)


def _operations(ring: GroupProgress | None) -> dict[int, Operation]:
    """What is known of operations by number, from any rank's ring."""
    found: dict[int, Operation] = {}
    for position in ring.positions.values() if ring is not None else ():
        for operation in (position.last, position.stuck):
            if operation is not None:
                found.setdefault(operation.seq, operation)
    return found


def _position(
    rank: int, mark: GroupMark, now_s: float, ring: GroupProgress | None, names: Mapping[int, Operation]
) -> Position:
    recorded = ring.positions.get(rank) if ring is not None else None
    if recorded is not None and recorded.enqueued > mark.enqueued:
        return recorded  # the ring of a rank that has ended is newer than its last message
    # A number of the group that the rank does not wait in: it came out, or it never waits (launched without waiting).
    is_pending = mark.completed is not None and mark.enqueued > mark.completed
    stuck: Operation | None = None
    if is_pending:
        seq = (mark.completed or 0) + 1
        own = recorded.stuck if recorded is not None and recorded.stuck is not None else None
        last = recorded.last if recorded is not None else None
        stuck = next((o for o in (own, last, names.get(seq)) if o is not None and o.seq == seq), None)
        stuck = stuck or Operation(seq=seq, name="")
        if mark.waiting_s is not None and stuck.created_s is None and mark.enqueued == seq:
            stuck = replace(stuck, created_s=now_s - mark.waiting_s)
        stuck = replace(stuck, state="scheduled")
    return Position(
        enqueued=mark.enqueued,
        completed=mark.completed,
        started=mark.started,
        stuck=stuck,
        last=recorded.last if recorded is not None and recorded.enqueued == mark.enqueued else names.get(mark.enqueued),
        time_s=mark.moved_s,
        origin=recorded.origin if recorded is not None else None,
        iteration=recorded.iteration if recorded is not None and recorded.enqueued == mark.enqueued else None,
    )
