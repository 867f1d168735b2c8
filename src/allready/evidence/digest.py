"""What a report keeps of the ruins: rows per rank, the moments of the story on one clock, sums over the sources."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from allready.model import (
    Aftermath,
    Death,
    GroupProgress,
    IterationCounts,
    Moment,
    Operation,
    ProcessRecord,
    RankRow,
    Role,
    Ruins,
)
from allready.signatures import load

MOST_ROWS = 4096
MOST_MOMENTS = 4000
MOST_SOURCES = 500
MOST_ODD_ITERATIONS = 200


def digest(after: Aftermath, *, onset_s: float | None = None) -> Ruins:
    """Small enough for report.json, however much was read."""
    sources = sorted(after.sources, key=lambda s: (s.problem is None, -s.num_understood, s.path))
    return Ruins(
        ranks=tuple(_rows(after))[:MOST_ROWS],
        moments=_moments(after),
        clocks=after.clocks,
        sources=tuple(sources[:MOST_SOURCES]),
        benches=after.benches[:16],
        iterations=_iterations(after),
        onset_s=onset_s,
        num_sources=len(after.sources),
        num_bytes=sum(s.size_bytes for s in after.sources),
        num_lines=sum(s.num_lines for s in after.sources),
        num_understood=sum(s.num_understood for s in after.sources),
        num_unknown=sum(s.num_unknown for s in after.sources),
        num_operations=sum(sum(p.op_counts.values()) for p in after.processes),
    )


def _rows(after: Aftermath) -> Iterator[RankRow]:
    known = {p.rank: p for p in after.processes if p.rank is not None}
    ranks = set(known) | set(after.node_of_rank) | {d.rank for d in after.deaths if d.rank is not None}
    ranks |= {r for g in after.progress for r in (*g.positions, *g.absent)}
    ranks |= set(range(min(after.expected_ranks, MOST_ROWS)))
    for rank in sorted(ranks):
        yield _row(after, rank, known.get(rank))
    for process in after.processes:
        if process.rank is None:
            yield _row(after, None, process)


def _row(after: Aftermath, rank: int | None, process: ProcessRecord | None) -> RankRow:
    p = process or ProcessRecord()
    stack = next((s for s in after.stacks if rank is not None and s.rank == rank and s.role == "rank"), None)
    return RankRow(
        rank=rank,
        node=None if rank is None else after.node_of_rank.get(rank),
        host=p.host,
        pid=p.pid if p.pid is not None else (stack.pid if stack else None),
        gpu=_gpu(p),
        versions=dict(p.versions),
        init=_init(p),
        network=p.network or "",
        plugins=p.plugins,
        interfaces=tuple(f"{name} {address}" for name, address in p.interfaces),
        available=p.available,
        hcas=p.hcas,
        transports=_transports(p),
        num_channels=dict(p.num_channels),
        algorithms=dict(p.algorithms),
        op_counts=dict(p.op_counts) or _counts(after, rank),
        groups={} if rank is None else dict(_groups(after, rank)),
        group_counts={} if rank is None else _group_counts(after, rank),
        phases_s=dict(p.phases_s),
        activity=f"{stack.activity} {stack.site}".strip() if stack else "",
        ending=_ending(after, rank),
        last_line=(p.last_line or "")[:300],
        last_line_class=p.last_line_class or "",
        last_source=str(p.last_origin) if p.last_origin else "",
    )


def _gpu(process: ProcessRecord) -> str:
    if process.nvml_dev is None and process.cuda_dev is None:
        return ""
    number = process.nvml_dev if process.nvml_dev is not None else process.cuda_dev
    return f"{number}" + (f" ({process.bus_id})" if process.bus_id else "")


def _init(process: ProcessRecord) -> str:
    if not process.comms:
        return ""
    return "completed" if all(c.init_completed for c in process.comms) else "started"


def _transports(process: ProcessRecord) -> tuple[str, ...]:
    found: Counter[str] = Counter()
    for transport in process.transports:
        arrow = "<-" if transport.direction == "receive" else "->"
        other = transport.src if transport.direction == "receive" else transport.dst
        found[f"{arrow} {other} {transport.how}"] += transport.num_channels
    return tuple(f"{what} x{n}" if n > 1 else what for what, n in list(found.items())[:64])


def _counts(after: Aftermath, rank: int | None) -> dict[str, int]:
    """Where no log counts operations: RAS's counters or a recorder's, of the group with most operations."""
    if rank is None:
        return {}
    best = [dict(g.positions[rank].counts) for g in after.progress if rank in g.positions]
    return max(best, key=lambda c: sum(c.values()), default={})


def _groups(after: Aftermath, rank: int) -> Iterator[tuple[str, str]]:
    for group in after.progress:
        name = _name(group)
        if rank in group.positions:
            position = group.positions[rank]
            done = "" if position.completed is None else f", {position.completed} completed"
            stuck = f", waits in {_named(position.stuck)}" if position.stuck else ""
            error = f", {position.error}" if position.error else ""
            yield name, f"{position.enqueued} enqueued{done}{stuck}{error}"
        elif rank in group.absent:
            yield name, group.absent[rank]


def _name(group: GroupProgress) -> str:
    return f"{group.label or group.group} ({group.source})"


def _group_counts(after: Aftermath, rank: int) -> dict[str, dict[str, int]]:
    return {
        _name(group): dict(group.positions[rank].counts)
        for group in after.progress
        if rank in group.positions and group.positions[rank].counts
    }


def _named(operation: Operation) -> str:
    return f"{operation.name} #{operation.seq}"


def _ending(after: Aftermath, rank: int | None) -> str:
    if rank is None:
        return ""
    death = next((d for d in after.deaths if d.rank == rank), None)
    if death is not None:
        return _died(death)
    if rank in after.ended_well:
        return "ended well"
    waits = [_wait(g, rank) for g in after.progress]
    return next((w for w in waits if w), "")


def _wait(group: GroupProgress, rank: int) -> str:
    position = group.positions.get(rank)
    return f"waits in {_named(position.stuck)}" if position is not None and position.stuck is not None else ""


def _died(death: Death) -> str:
    how = death.text or death.signal or (f"exit code {death.exit_code}" if death.exit_code is not None else death.kind)
    return f"{how} (ended by its launcher)" if death.by_launcher else how


def _moments(after: Aftermath) -> tuple[Moment, ...]:
    """Everything with a time, on the reference node's clock; root causes are kept when there is too much."""
    shifts = {clock.node: -clock.offset_s for clock in after.clocks}
    found = sorted(_all_moments(after, shifts), key=_when)
    if len(found) > MOST_MOMENTS:
        grave = [m for m in found if m.role in {Role.ROOT, "death"}][: MOST_MOMENTS // 2]
        rest = [m for m in found if m.role not in {Role.ROOT, "death"}]
        half = (MOST_MOMENTS - len(grave)) // 2
        found = sorted([*grave, *rest[:half], *rest[-half:]], key=_when)
    return tuple(found)


def _when(moment: Moment) -> tuple[bool, float]:
    return moment.time_s is None, moment.time_s or 0.0


def _all_moments(after: Aftermath, shifts: Mapping[str, float]) -> Iterator[Moment]:
    signatures = load()
    numbers = {number: key for key, number in after.node_numbers.items()}

    def shift(node: int | None) -> float:
        return 0.0 if node is None else shifts.get(numbers.get(node, ""), shifts.get(str(node), 0.0))

    for event in after.events:
        node = _node(after, event.origin.rank, event.origin.node or event.origin.host)
        signature = signatures.get(event.signature)
        yield Moment(
            time_s=None if event.time_s is None else event.time_s + shift(node), role=str(event.role),
            text=event.text[:300], rank=event.origin.rank, node=node, code=signature.code if signature else None,
            source=str(event.origin), shift_s=shift(node), count=event.count,
        )  # fmt: skip
    for death in after.deaths:
        node = _node(after, death.rank, death.node or death.origin.node or death.host)
        yield Moment(
            time_s=None if death.time_s is None else death.time_s + shift(node), role="death",
            text=_died(death)[:300], rank=death.rank, node=node, source=str(death.origin), shift_s=shift(node),
        )  # fmt: skip
    for process in after.processes:
        node = after.node_of_rank.get(process.rank) if process.rank is not None else None
        for comm in process.comms:
            if comm.started_s is not None:
                ended = comm.completed_s
                yield Moment(
                    time_s=comm.started_s + shift(node), role="operation", text=f"init of {comm.comm_id or comm.comm}",
                    rank=process.rank, node=node, shift_s=shift(node),
                    duration_s=None if ended is None else max(0.0, ended - comm.started_s),
                )  # fmt: skip
    for group in after.progress:
        for rank, position in group.positions.items():
            stuck, node = position.stuck, after.node_of_rank.get(rank)
            if stuck is not None and stuck.created_s is not None:
                yield Moment(
                    time_s=stuck.created_s + shift(node), role="operation", rank=rank, node=node,
                    text=f"enters {_named(stuck)} of {group.label or group.group} and never completes it",
                    source=str(position.origin or group.source), shift_s=shift(node),
                    duration_s=None if after.last_time_s is None else max(0.0, after.last_time_s - stuck.created_s),
                )  # fmt: skip


def _node(after: Aftermath, rank: int | None, key: str | None) -> int | None:
    """Of a line's writer: by its rank, else by what its file or prefix calls the node."""
    if rank is not None and rank in after.node_of_rank:
        return after.node_of_rank[rank]
    return after.node_numbers.get(key) if key else None


def _iterations(after: Aftermath) -> IterationCounts | None:
    if after.iterations is None:
        return None
    odd = [
        (rank, number, dict(counts))
        for rank, by_number in sorted(after.iterations.odd.items())
        for number, counts in sorted(by_number.items())
    ]
    return IterationCounts(
        marker=re.sub(r"[\x00-\x1f]", " ", after.iterations.marker)[:200],
        num_iterations=dict(after.iterations.num_iterations),
        usual=dict(after.iterations.usual),
        odd=tuple(odd[:MOST_ODD_ITERATIONS]),
    )
