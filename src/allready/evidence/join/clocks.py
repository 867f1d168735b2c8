"""How far nodes' clocks differ, from causality: no rank leaves a collective before all have entered it.

With clock = true time + offset, an operation that node b entered at e_b and node a saw completed at x_a gives
offset_a - offset_b <= x_a - e_b.  The least of these bounds over all operations, in both directions, encloses the
difference; its middle is the estimate and half its width the uncertainty.  The same holds for a communicator's
"Init START" and "Init COMPLETE".
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from allready.evidence.flight.groups import Group, by_rank, groups_of
from allready.evidence.reading import FlightDump
from allready.model import ClockOffset, ProcessRecord

LAST_OPERATIONS = 400
RANKS_PER_NODE = 4
"""Operations and ranks beyond add little: bounds get tight with the first hundred."""

COMPLETED = 2

Meeting = Mapping[str, tuple[float, float | None]]
"""Node -> when its last rank entered, and when its first rank saw the end (None: never); seconds of its own clock."""


def clock_offsets(
    dumps: Sequence[FlightDump],
    processes: Sequence[ProcessRecord],
    node_of: Mapping[int, str],
    order: Mapping[str, int],
) -> tuple[ClockOffset, ...]:
    """Every node's clock against that of the lowest node rank; nodes without a bound in both directions are left out.

    Args:
        processes: with communicators whose init lines have times.
        node_of: rank -> node's key.
        order: node's key -> node rank.
    """
    upper: dict[tuple[str, str], float] = {}
    matches: dict[tuple[str, str], int] = {}
    for meeting in (*_operations(dumps, node_of), *_inits(processes, node_of)):
        for a, (_, left) in meeting.items():
            if left is None:
                continue
            for b, (entered, _) in meeting.items():
                if a != b:
                    bound = left - entered
                    upper[a, b] = min(upper.get((a, b), bound), bound)
                    matches[a, b] = matches.get((a, b), 0) + 1
    keys = sorted({k for pair in upper for k in pair}, key=lambda k: (order.get(k, 1 << 30), k))
    if not keys:
        return ()
    reference = keys[0]
    found = []
    for key in keys[1:]:
        if (key, reference) not in upper or (reference, key) not in upper:
            continue
        high, low = upper[key, reference], -upper[reference, key]
        found.append(
            ClockOffset(
                node=key,
                offset_s=round((high + low) / 2, 6),
                uncertainty_s=round(abs(high - low) / 2, 6),
                num_matches=min(matches[key, reference], matches[reference, key]),
            )
        )
    return tuple(found)


def _operations(dumps: Sequence[FlightDump], node_of: Mapping[int, str]) -> Iterator[Meeting]:
    chosen, _ = by_rank(dumps)
    taken: dict[str, int] = {}
    few: dict[int, FlightDump] = {}
    for rank, dump in chosen.items():
        key = node_of.get(rank)
        if key is not None and taken.get(key, 0) < RANKS_PER_NODE:
            taken[key] = taken.get(key, 0) + 1
            few[rank] = dump
    if len(taken) < 2:
        return
    for group in groups_of(few):
        yield from _of_group(group, node_of)


def _of_group(group: Group, node_of: Mapping[int, str]) -> Iterator[Meeting]:
    if len({node_of.get(rank) for rank in group.dumps}) < 2:
        return
    by_seq: dict[int, dict[str, tuple[float, float | None]]] = {}
    for rank in group.dumps:
        ring, key = group.ring(rank), node_of.get(rank)
        if ring is None or key is None:
            continue
        for i in range(max(0, len(ring) - LAST_OPERATIONS), len(ring)):
            if ring.p2p_seq and ring.p2p_seq[i]:
                continue
            created = ring.created_ns[i]
            if not created:
                continue
            ended = ring.completed_ns[i] if ring.completed_ns and ring.state[i] & 3 == COMPLETED else 0
            _add(by_seq.setdefault(ring.seq[i], {}), key, created / 1e9, ended / 1e9 if ended else None)
    yield from (m for m in by_seq.values() if len(m) > 1)


def _inits(processes: Iterable[ProcessRecord], node_of: Mapping[int, str]) -> Iterator[Meeting]:
    by_comm: dict[str, dict[str, tuple[float, float | None]]] = {}
    for process in processes:
        key = node_of.get(process.rank) if process.rank is not None else None
        if key is None:
            continue
        for comm in process.comms:
            if comm.comm_id is not None and comm.started_s is not None:
                _add(by_comm.setdefault(comm.comm_id, {}), key, comm.started_s, comm.completed_s)
    yield from (m for m in by_comm.values() if len(m) > 1)


def _add(meeting: dict[str, tuple[float, float | None]], key: str, entered: float, left: float | None) -> None:
    old = meeting.get(key)
    if old is None:
        meeting[key] = (entered, left)
        return
    ends = [t for t in (old[1], left) if t is not None]
    meeting[key] = (max(old[0], entered), min(ends, default=None))
