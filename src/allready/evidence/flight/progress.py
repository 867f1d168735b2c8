"""How far each member of a group came, from its dump."""

from collections import Counter
from collections.abc import Mapping

from msgspec.structs import replace

from allready.evidence.flight.groups import Group
from allready.evidence.flight.tracks import COMPLETED, STARTED, UNKNOWN, Track, operation
from allready.evidence.operation_names import SYNCHRONISING
from allready.evidence.reading import FlightDump
from allready.model import Absence, GroupProgress, Operation, Position, Recorder

MAX_RANKS = 1 << 17
_RECENT = 32
"""Operations whose rhythm counts."""
_STANDS = 3
"""So many times the usual time between two of them."""


def progress_of(group: Group, tracks: Mapping[int, Track]) -> GroupProgress | None:
    """All members' positions; None for a group without collectives (it only sends and receives)."""
    positions: dict[int, Position] = {}
    absent: dict[int, Absence] = {}
    for rank, dump in group.dumps.items():
        position = _position(group, tracks.get(rank), dump)
        if position is None:
            absent[rank] = Absence.TRUNCATED if dump.is_cut else Absence.NO_ENTRY
        else:
            positions[rank] = position
    if not any(p.enqueued for p in positions.values()):
        return None
    if any(t.dump.completes_by_retirement for t in tracks.values()):
        _deny(group, positions, tracks)
    for rank in _outdated(positions, tracks):
        del positions[rank]
        absent[rank] = Absence.OUTDATED
    expected = group.members or (range(max(group.dumps)) if group.is_world and max(group.dumps) < MAX_RANKS else ())
    absent.update({r: Absence.NO_DUMP for r in expected if r not in group.dumps})
    return GroupProgress(
        group=group.title,
        base_name=group.name,
        source=Recorder.FLIGHT,
        label=group.label,
        members=tuple(group.members),
        size=group.size,
        positions=dict(sorted(positions.items())),
        absent=dict(sorted(absent.items())),
        complete=True,
        origin=next(iter(group.dumps.values())).origin,
    )


def _position(group: Group, track: Track | None, dump: FlightDump) -> Position | None:
    counts = dump.status.get(group.name)
    enqueued, started, completed = counts if counts is not None else (None, None, None)
    if dump.completes_by_retirement:
        enqueued = started = completed = None  # Gloo counts sends and receives too, in one number
    if dump.is_cut:  # the newest entries are missing; the status stands before them and is right about what was begun
        return None if enqueued is None else Position(enqueued=enqueued, completed=completed, origin=dump.origin)
    if track is None or not len(track.codes):
        if track is not None and track.p2p:
            return Position(enqueued=0, origin=dump.origin) if dump.is_whole else None
        if enqueued is not None:
            return Position(enqueued=enqueued, started=started, completed=completed, origin=dump.origin)
        return Position(enqueued=0, completed=0, origin=dump.origin) if dump.is_whole else None
    states = bytes([track.state(i) if i >= 0 else UNKNOWN for i in track.last])
    done = states.rfind(COMPLETED)
    begun = max(done, states.rfind(STARTED))
    # One group's operations run in order: what stands before a completed one is completed too.
    pending = next((i for i in range(done + 1, len(states)) if states[i] != UNKNOWN), None)
    last = len(states) - 1
    return Position(
        enqueued=track.hi,
        completed=track.lo + done if done >= 0 else completed,
        started=track.lo + begun if begun >= 0 else started,
        stuck=None if pending is None else _at(group, track, pending),
        last=_at(group, track, last),
        counts=_counts(track) if dump.is_whole and track.lo <= 1 else {},
        error="timed out" if pending is not None and track.timed_out(track.last[pending]) else None,
        time_s=max((track.ring.created_ns[i] for i in track.last[-1:]), default=0) / 1e9 or None,
        origin=dump.origin,
    )


def _at(group: Group, track: Track, place: int) -> Operation:
    return operation(group, track, track.first[place], track.last[place])


def _counts(track: Track) -> dict[str, int]:
    counts: Counter[str] = Counter()
    shapes = track.dump.shapes
    for code, number in Counter(track.ring.shape).items():
        if not shapes[code].is_p2p:
            counts[shapes[code].name] += number
    return dict(sorted(counts.items()))


def _deny(group: Group, positions: dict[int, Position], tracks: Mapping[int, Track]) -> None:
    """Gloo retires failed operations too; but no rank gets through an all_reduce that a member did not enter."""
    stood = [p.enqueued for rank, p in positions.items() if rank not in tracks or not _is_in_motion(tracks[rank])]
    if not stood:
        return
    least = min(stood)
    for rank, track in tracks.items():
        position = positions.get(rank)
        if position is None:
            continue
        for seq in range(max(least + 1, track.lo), track.hi + 1):
            entry = track.first[seq - track.lo]
            if entry < 0 or track.dump.shapes[track.ring.shape[entry]].name not in SYNCHRONISING:
                continue
            if position.stuck is None or seq < position.stuck.seq:
                failed = replace(_at(group, track, seq - track.lo), state="scheduled")
                positions[rank] = replace(position, stuck=failed, completed=seq - 1)
            break


def _is_in_motion(track: Track) -> bool:
    """Whether the dump was taken while its rank went on as before: it does not tell where the rank came to stand.

    So is that of a rank that was killed later: its last ring is up to eight seconds old.
    """
    created = [ns for ns in track.ring.created_ns[-_RECENT:] if ns]
    if track.dump.taken_ns is None or len(created) < _RECENT // 4:
        return False
    usual_ns = (created[-1] - created[0]) / (len(created) - 1)
    return abs(track.dump.taken_ns - created[-1]) < _STANDS * usual_ns


def _outdated(positions: Mapping[int, Position], tracks: Mapping[int, Track]) -> list[int]:
    """Ranks whose dumps are older than what the others' show: a rank completed an operation that needs every member
    and that they had not entered yet.  Who gave up waiting stands where its dump says.
    """
    through = max((_through(p, tracks[r]) for r, p in positions.items() if r in tracks), default=0)
    return [r for r, p in positions.items() if p.enqueued < through and p.error is None]


def _through(position: Position, track: Track) -> int:
    """The last operation that this rank completed and that no rank leaves before all have entered; 0 when none is."""
    for seq in range(min(position.completed or 0, track.hi), track.lo - 1, -1):
        entry = track.first[seq - track.lo]
        if entry >= 0 and track.dump.shapes[track.ring.shape[entry]].name in SYNCHRONISING:
            return seq
    return 0
