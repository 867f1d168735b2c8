"""Sends and receives: the i-th send of a rank to another belongs to the i-th receive there.

Numbers of sends and receives are a process's own, so each direction between two ranks is examined by itself.  When
both rings reach back to the start, operations are counted; otherwise what is completed on either side is taken to be
level, and only what is pending is compared.  Which send a receive from any rank took, is not recorded: of a rank that
makes such receives, no direction is examined.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from allready.evidence.flight.groups import Group
from allready.evidence.flight.tracks import COMPLETED, UNKNOWN, Track, operation
from allready.model import Absence, GroupProgress, Operation, Position, Recorder

MAX_PAIRS = 4_096
_OTHER = {"send": "recv", "recv": "send"}


class End(Struct):
    """One rank's side of one direction: entries in order, and the entry that holds each one's state."""

    track: Track
    entries: list[int] = []
    states: list[int] = []

    def pending(self) -> list[int]:
        """Places in `entries` of what is not completed, after the last completed one."""
        done = max((i for i, s in enumerate(self.states) if s == COMPLETED), default=-1)
        return [i for i in range(done + 1, len(self.states)) if self.states[i] != UNKNOWN]


class Pair(Struct, frozen=True):
    """Both sides of one direction."""

    src: int
    dst: int
    send: End
    receive: End

    def halves(self) -> tuple[list[tuple[Track, int]], list[tuple[Track, int]]]:
        """The entries of sends, and of the receives that belong to them, as far as it is known that they do."""
        ends = self.send, self.receive
        is_whole = all(end.track.dump.is_whole for end in ends)
        places = (range(len(end.entries)) if is_whole else end.pending() for end in ends)
        sends, receives = ([(end.track, end.entries[i]) for i in at] for end, at in zip(ends, places, strict=True))
        return sends, receives


def pairs_of(group: Group, tracks: Mapping[int, Track]) -> tuple[list[GroupProgress], list[Pair]]:
    """Of each direction in which something is pending: how far both ends came; and the directions of which both ends
    are recorded."""
    ends = _ends(group, tracks)
    open_ranks = {r for r, track in tracks.items() if _takes_from_any(track)}
    progress: list[GroupProgress] = []
    pairs: list[Pair] = []
    for src, dst in sorted({key[:2] for key in ends if key[1] not in open_ranks})[:MAX_PAIRS]:
        send, receive = ends.get((src, dst, "send")), ends.get((src, dst, "recv"))
        found = _progress(group, tracks, src, dst, send, receive)
        if found is not None:
            progress.append(found)
        if send is not None and receive is not None:
            pairs.append(Pair(src, dst, send, receive))
    return progress, pairs


def _ends(group: Group, tracks: Mapping[int, Track]) -> dict[tuple[int, int, str], End]:
    """(source, destination, "send" or "recv") in global ranks -> that side's operations."""
    ends: dict[tuple[int, int, str], End] = {}
    for rank, track in tracks.items():
        shapes = track.dump.shapes
        for first, last in track.p2p:
            for entry in range(first, last + 1):
                shape = shapes[track.ring.shape[entry]]
                src, dst = group.global_rank(shape.src), group.global_rank(shape.dst)
                if shape.name not in _OTHER or src is None or dst is None:
                    continue
                if rank != (src if shape.name == "send" else dst):
                    continue  # the name does not fit the rank: nothing is built on it
                end = ends.setdefault((src, dst, shape.name), End(track))
                end.entries.append(entry)
                # In a batch only the last entry, "coalesced", is recorded when it ends.
                state = track.state(last if shapes[track.ring.shape[last]].name == "coalesced" else entry)
                end.states.append(state)
    return ends


def _takes_from_any(track: Track) -> bool:
    shapes = track.dump.shapes
    used = {track.ring.shape[entry] for first, last in track.p2p for entry in range(first, last + 1)}
    return any(
        shapes[code].name == "recv" and shapes[code].dst is not None and shapes[code].src is None for code in used
    )


def _progress(
    group: Group, tracks: Mapping[int, Track], src: int, dst: int, send: End | None, receive: End | None
) -> GroupProgress | None:
    pending = {r: e.pending() for r, e in ((src, send), (dst, receive)) if e is not None}
    if not any(pending.values()):
        return None
    whole = all(group.dumps[r].is_whole for r in (src, dst) if r in group.dumps)
    base = 0 if whole else max(_number(e, p) for e, p in ((send, pending.get(src)), (receive, pending.get(dst))) if e)
    positions: dict[int, Position] = {}
    absent: dict[int, Absence] = {}
    for rank, end in ((src, send), (dst, receive)):
        dump = group.dumps.get(rank)
        if dump is None or dump.is_cut:
            absent[rank] = Absence.NO_DUMP if dump is None else Absence.TRUNCATED
        elif end is None:
            if dump.is_whole or (rank in tracks and tracks[rank].p2p):
                positions[rank] = Position(enqueued=base, completed=base, origin=dump.origin)
            else:
                absent[rank] = Absence.NO_ENTRY
        else:
            level = _number(end, pending[rank]) if whole else base
            positions[rank] = _position(group, end, pending[rank], level)
    label = f"{group.label or group.name} send {src}->{dst}"
    origin = next(e.track.dump.origin for e in (send, receive) if e is not None)
    return GroupProgress(
        group=f"{group.title} send {src}->{dst}",
        base_name=group.name,
        pair=(src, dst),
        source=Recorder.FLIGHT,
        label=label,
        members=tuple(sorted({src, dst})),
        size=len({src, dst}),
        positions=dict(sorted(positions.items())),
        absent=absent,
        complete=True,
        origin=origin,
    )


def _number(end: End, pending: Sequence[int] | None) -> int:
    """How many of this side's operations are behind it, as far as the ring goes back."""
    return len(end.entries) - len(pending or ())


def _position(group: Group, end: End, pending: Sequence[int], base: int) -> Position:
    operations = [operation(group, end.track, end.entries[i]) for i in (*pending[:1], len(end.entries) - 1)]
    stuck: Operation | None = None
    if pending:
        stuck = replace(operations[0], seq=base + 1, state="scheduled" if end.states[pending[0]] == 0 else "started")
    last = replace(operations[-1], seq=base + len(pending))
    return Position(
        enqueued=base + len(pending),
        completed=base,
        stuck=stuck,
        last=last,
        time_s=last.created_s,
        origin=end.track.dump.origin,
    )
