"""From streams of operations to communicators, progress and iterations."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from allready.evidence.join.identity import MAX_RANKS
from allready.evidence.operations.codes import counts_by_name, last_shape, num_collectives, operation, origin_at
from allready.evidence.operations.members import LoggedGroup, gather_groups, gather_processes
from allready.evidence.reading import OpStream
from allready.model import Absence, GroupProgress, Position, ProcessRecord, Recorder

MAX_ABSENT = 100_000


class KnownCommunicator(Struct, frozen=True, kw_only=True):
    """One communicator whose ranks are known.

    `streams`: global rank -> its operations.  `members`: rank in the communicator -> global rank, of those that left a
    log.  `size`: how many it has in all.  `complete`: all ranks ended it in order.  `clocks`: rank -> seconds that its
    clock is ahead; None: not known.
    """

    name: str
    streams: Mapping[int, OpStream]
    members: Mapping[int, int]
    size: int
    complete: bool
    clocks: Mapping[int, float] | None


class OperationsJoin(Struct, frozen=True, kw_only=True):
    """What the COLL lines of all processes show together.  `streams`: rank -> all of its process."""

    progress: tuple[GroupProgress, ...] = ()
    communicators: tuple[KnownCommunicator, ...] = ()
    streams: Mapping[int, Sequence[OpStream]] = {}


def join_operations(streams: Sequence[OpStream], processes: Sequence[ProcessRecord]) -> OperationsJoin:
    """Join the operations of all processes by communicator.

    A `Position.enqueued` counts the operations that all ranks make together; sends and receives are in `counts` only,
    as every rank may have its own number of them.

    Args:
        processes: merged, one per process; their communicators say which stream belongs to which.
    """
    gathered = gather_processes(streams, processes)
    progress, communicators = [], []
    for group in sorted(gather_groups(gathered), key=lambda g: (g.is_child, -g.nranks, g.name)):
        found = {r: s for r, (_, _, s) in group.members.items() if s is not None}
        if not found:
            continue
        ranks = _ranks(group)
        if ranks is None:
            continue
        by_rank = {ranks[r]: s for r, s in sorted(found.items())}
        complete = _is_complete(group)
        if any(num_collectives(s) for s in by_rank.values()):
            progress.append(_progress(group, ranks, by_rank, complete=complete))
        communicators.append(
            KnownCommunicator(
                name=group.name,
                streams=by_rank,
                members=ranks,
                size=group.nranks,
                complete=complete,
                clocks=_clocks(group, ranks),
            )
        )
    of_process = {p.rank: list(p.streams.values()) for p in gathered if p.rank is not None and p.streams}
    return OperationsJoin(progress=tuple(progress), communicators=tuple(communicators), streams=of_process)


def _ranks(group: LoggedGroup) -> dict[int, int] | None:
    """Rank in the communicator -> global rank, None unless all are known and differ."""
    ranks: dict[int, int] = {}
    for rank, (process, _, _) in sorted(group.members.items()):
        if process.rank is None:
            return None
        ranks[rank] = process.rank
    return ranks if len(set(ranks.values())) == len(ranks) else None


def _is_complete(group: LoggedGroup) -> bool:
    """All ranks ended the communicator in order."""
    records = [comm for _, comm, _ in group.members.values()]
    return len(records) == group.nranks and all(c.destroyed and not c.aborted for c in records)


def _progress(
    group: LoggedGroup, ranks: Mapping[int, int], by_rank: Mapping[int, OpStream], *, complete: bool
) -> GroupProgress:
    absent: dict[int, Absence] = {}
    positions = {rank: _position(stream) for rank, stream in by_rank.items()}
    for number, (process, comm, stream) in group.members.items():
        if stream is None:
            if process.streams and comm.init_completed:  # it logs operations of others, so it made none in this one
                positions[ranks[number]] = Position(enqueued=0)
            else:
                absent[ranks[number]] = Absence.NO_LINE
    is_whole = group.is_whole and group.nranks <= MAX_RANKS and all(a == b for a, b in ranks.items())
    if is_whole and group.nranks - len(ranks) <= MAX_ABSENT:
        absent |= {r: Absence.NO_LOG for r in range(group.nranks) if r not in ranks}
    is_full = len(ranks) == group.nranks
    return GroupProgress(
        group=group.name,
        source=Recorder.COLL_LOG,
        members=tuple(ranks[r] for r in sorted(ranks)) if is_full else tuple(range(group.nranks)) if is_whole else (),
        size=group.nranks,
        positions=dict(sorted(positions.items())),
        absent=dict(sorted(absent.items())),
        complete=complete,
        origin=next(iter(by_rank.values())).origin,
    )


def _position(stream: OpStream) -> Position:
    num = num_collectives(stream)
    last = last_shape(stream)
    time_s = stream.times[-1][1] if stream.times else None
    return Position(
        enqueued=num,
        last=operation(last, num) if last is not None else None,
        counts=counts_by_name(stream),
        time_s=time_s,
        origin=origin_at(stream, stream.num_operations - 1),
    )


def _clocks(group: LoggedGroup, ranks: Mapping[int, int]) -> dict[int, float] | None:
    """How far every rank's clock is ahead: all complete the communicator's start together; one host has one clock."""
    members = list(group.members.items())
    hosts = {(p.record.host, p.record.node) for _, (p, _, _) in members}
    if len(hosts) == 1 and None not in next(iter(hosts))[:1]:
        return {ranks[r]: 0.0 for r, _ in members}
    done = {ranks[r]: comm.completed_s for r, (_, comm, _) in members if comm.completed_s is not None}
    if len(done) < len(members):
        return None
    first = min(done.values())
    by_host: dict[tuple[str | None, str | None], list[float]] = {}
    for r, (process, _, _) in members:
        by_host.setdefault((process.record.host, process.record.node), []).append(done[ranks[r]] - first)
    ahead = {host: sorted(values)[len(values) // 2] for host, values in by_host.items()}
    return {ranks[r]: ahead[p.record.host, p.record.node] for r, (p, _, _) in members}
