"""What a report keeps of the ruins: rows per rank, the moments of the story on one clock, sums over the sources."""

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from allready import model
from allready.signatures import load

MAX_ROWS = 4096
MAX_MOMENTS = 4000
MAX_SOURCES = 500
MAX_ODD_ITERATIONS = 200
_GRAVE = {model.Role.ROOT, "death"}


def digest(run: model.RunEvidence, *, onset_s: float | None = None) -> model.RunSummary:
    """Small enough for report.json, however much was read."""
    sources = sorted(run.sources, key=lambda s: (s.problem is None, -s.num_understood, s.path))
    return model.RunSummary(
        ranks=tuple(_rows(run))[:MAX_ROWS],
        moments=_moments(run),
        clocks=run.clocks,
        sources=tuple(sources[:MAX_SOURCES]),
        benches=run.benches[:16],
        iterations=_iterations(run),
        onset_s=onset_s,
        num_sources=len(run.sources),
        num_bytes=sum(s.size_bytes for s in run.sources),
        num_lines=sum(s.num_lines for s in run.sources),
        num_understood=sum(s.num_understood for s in run.sources),
        num_unknown=sum(s.num_unknown for s in run.sources),
        num_operations=sum(sum(p.op_counts.values()) for p in run.processes),
    )


def _rows(run: model.RunEvidence) -> Iterator[model.RankRow]:
    known = {p.rank: p for p in run.processes if p.rank is not None}
    ranks = set(known) | set(run.node_of_rank) | {d.rank for d in run.deaths if d.rank is not None}
    ranks |= {r for g in run.progress for r in (*g.positions, *g.absent)}
    ranks |= set(range(min(run.expected_ranks, MAX_ROWS)))
    stacks = {s.rank: s for s in reversed(run.stacks) if s.rank is not None and s.role == "rank"}  # the first of each
    deaths = {d.rank: d for d in reversed(run.deaths) if d.rank is not None}
    for rank in sorted(ranks):
        yield _row(run, rank, known.get(rank), stacks.get(rank), deaths.get(rank))
    for process in run.processes:
        if process.rank is None:
            yield _row(run, None, process)


def _row(
    run: model.RunEvidence,
    rank: int | None,
    process: model.ProcessRecord | None,
    stack: model.ProcessStack | None = None,
    death: model.Death | None = None,
) -> model.RankRow:
    p = process or model.ProcessRecord()
    return model.RankRow(
        rank=rank,
        node=None if rank is None else run.node_of_rank.get(rank),
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
        op_counts=dict(p.op_counts) or _counts(run, rank),
        groups={} if rank is None else dict(_groups(run, rank)),
        group_counts={} if rank is None else _group_counts(run, rank),
        phases_s=dict(p.phases_s),
        activity=f"{stack.activity} {stack.site}".strip() if stack else "",
        ending=_ending(run, rank, death),
        last_line=(p.last_line or "")[:300],
        last_line_class=p.last_line_class or "",
        last_source=str(p.last_origin) if p.last_origin else "",
    )


def _gpu(process: model.ProcessRecord) -> str:
    if process.nvml_dev is None and process.cuda_dev is None:
        return ""
    number = process.nvml_dev if process.nvml_dev is not None else process.cuda_dev
    return f"{number}" + (f" ({process.bus_id})" if process.bus_id else "")


def _init(process: model.ProcessRecord) -> str:
    if not process.comms:
        return ""
    return "completed" if all(c.init_completed for c in process.comms) else "started"


def _transports(process: model.ProcessRecord) -> tuple[str, ...]:
    found: Counter[str] = Counter()
    for transport in process.transports:
        arrow = "<-" if transport.direction == "receive" else "->"
        other = transport.src if transport.direction == "receive" else transport.dst
        found[f"{arrow} {other} {transport.how}"] += transport.num_channels
    return tuple(f"{what} x{n}" if n > 1 else what for what, n in list(found.items())[:64])


def _counts(run: model.RunEvidence, rank: int | None) -> dict[str, int]:
    """Where no log counts operations: RAS's counters or a recorder's, of the group with most operations."""
    if rank is None:
        return {}
    best = [dict(g.positions[rank].counts) for g in run.progress if rank in g.positions]
    return max(best, key=lambda c: sum(c.values()), default={})


def _groups(run: model.RunEvidence, rank: int) -> Iterator[tuple[str, str]]:
    for group in run.progress:
        name = _name(group)
        if rank in group.positions:
            position = group.positions[rank]
            done = "" if position.completed is None else f", {position.completed} completed"
            stuck = f", waits in {_named(position.stuck)}" if position.stuck else ""
            error = f", {position.error}" if position.error else ""
            yield name, f"{position.enqueued} enqueued{done}{stuck}{error}"
        elif rank in group.absent:
            yield name, group.absent[rank]


def _name(group: model.GroupProgress) -> str:
    return f"{group.label or group.group} ({group.source})"


def _group_counts(run: model.RunEvidence, rank: int) -> dict[str, dict[str, int]]:
    return {
        _name(group): dict(group.positions[rank].counts)
        for group in run.progress
        if rank in group.positions and group.positions[rank].counts
    }


def _named(operation: model.Operation) -> str:
    return f"{operation.name} #{operation.seq}"


def _ending(run: model.RunEvidence, rank: int | None, death: model.Death | None) -> str:
    if rank is None:
        return ""
    if death is not None:
        return _died(death)
    if rank in run.ended_well:
        return "ended well"
    waits = [_wait(g, rank) for g in run.progress]
    return next((w for w in waits if w), "")


def _wait(group: model.GroupProgress, rank: int) -> str:
    position = group.positions.get(rank)
    return f"waits in {_named(position.stuck)}" if position is not None and position.stuck is not None else ""


def _died(death: model.Death) -> str:
    how = death.text or death.signal or (f"exit code {death.exit_code}" if death.exit_code is not None else death.kind)
    return f"{how} (ended by its launcher)" if death.by_launcher else how


class _Draft(NamedTuple):
    """A moment that may be left out: of many thousands most are, and to make one takes longer than to sort it."""

    time_s: float | None
    role: str
    made: Callable[[], model.TimelineEvent]


def _moments(run: model.RunEvidence) -> tuple[model.TimelineEvent, ...]:
    """Everything with a time, on the reference node's clock; root causes are kept when there is too much."""
    shifts = {clock.node: -clock.offset_s for clock in run.clocks}
    found = sorted(_drafts(run, shifts), key=_when)
    if len(found) > MAX_MOMENTS:
        grave = [d for d in found if d.role in _GRAVE][: MAX_MOMENTS // 2]
        rest = [d for d in found if d.role not in _GRAVE]
        half = (MAX_MOMENTS - len(grave)) // 2
        found = sorted([*grave, *rest[:half], *rest[-half:]], key=_when)
    return tuple(draft.made() for draft in found)


def _when(draft: _Draft) -> tuple[bool, float]:
    return draft.time_s is None, draft.time_s or 0.0


def _drafts(run: model.RunEvidence, shifts: Mapping[str, float]) -> Iterator[_Draft]:
    numbers = {number: key for key, number in run.node_numbers.items()}

    @functools.cache
    def shift(node: int | None) -> float:
        return 0.0 if node is None else shifts.get(numbers.get(node, ""), shifts.get(str(node), 0.0))

    def draft(
        make: Callable[..., model.TimelineEvent], time_s: float | None, role: str, node: int | None, *of: object
    ) -> _Draft:
        shift_s = shift(node)
        shifted_s = None if time_s is None else time_s + shift_s
        return _Draft(shifted_s, role, functools.partial(make, *of, time_s=shifted_s, node=node, shift_s=shift_s))

    for event in run.events:
        node = _node(run, event.origin.rank, event.origin.node or event.origin.host)
        yield draft(_of_event, event.time_s, event.role, node, event)
    for death in run.deaths:
        node = _node(run, death.rank, death.node or death.origin.node or death.host)
        yield draft(_of_death, death.time_s, "death", node, death)
    for process in run.processes:
        node = run.node_of_rank.get(process.rank) if process.rank is not None else None
        for comm in process.comms:
            if comm.started_s is not None:
                yield draft(_of_comm, comm.started_s, "operation", node, process, comm)
    for group in run.progress:
        for rank, position in group.positions.items():
            stuck = position.stuck
            if stuck is not None and stuck.created_s is not None:
                node = run.node_of_rank.get(rank)
                yield draft(_of_stuck, stuck.created_s, "operation", node, run, group, rank)


def _of_event(event: model.Event, *, time_s: float | None, node: int | None, shift_s: float) -> model.TimelineEvent:
    signature = load().get(event.signature)
    return model.TimelineEvent(
        time_s=time_s,
        role=str(event.role),
        text=event.text[:300],
        rank=event.origin.rank,
        node=node,
        code=signature.code if signature else None,
        source=str(event.origin),
        shift_s=shift_s,
        count=event.count,
    )


def _of_death(death: model.Death, *, time_s: float | None, node: int | None, shift_s: float) -> model.TimelineEvent:
    return model.TimelineEvent(
        time_s=time_s,
        role="death",
        text=_died(death)[:300],
        rank=death.rank,
        node=node,
        source=str(death.origin),
        shift_s=shift_s,
    )


def _of_comm(
    process: model.ProcessRecord, comm: model.CommRecord, *, time_s: float | None, node: int | None, shift_s: float
) -> model.TimelineEvent:
    ended, started = comm.completed_s, comm.started_s
    return model.TimelineEvent(
        time_s=time_s,
        role="operation",
        text=f"init of {comm.comm_id or comm.comm}",
        rank=process.rank,
        node=node,
        shift_s=shift_s,
        duration_s=None if ended is None or started is None else max(0.0, ended - started),
    )


def _of_stuck(
    run: model.RunEvidence,
    group: model.GroupProgress,
    rank: int,
    *,
    time_s: float | None,
    node: int | None,
    shift_s: float,
) -> model.TimelineEvent:
    position = group.positions[rank]
    stuck, end_s = position.stuck, run.last_time_s
    assert stuck is not None
    return model.TimelineEvent(
        time_s=time_s,
        role="operation",
        rank=rank,
        node=node,
        text=f"enters {_named(stuck)} of {group.label or group.group} and never completes it",
        source=str(position.origin or group.source),
        shift_s=shift_s,
        duration_s=None if end_s is None or stuck.created_s is None else max(0.0, end_s - stuck.created_s),
    )


def _node(run: model.RunEvidence, rank: int | None, key: str | None) -> int | None:
    """Of a line's writer: by its rank, else by what its file or prefix calls the node."""
    if rank is not None and rank in run.node_of_rank:
        return run.node_of_rank[rank]
    return run.node_numbers.get(key) if key else None


def _iterations(run: model.RunEvidence) -> model.IterationCounts | None:
    if run.iterations is None:
        return None
    odd = [
        (rank, number, dict(counts))
        for rank, by_number in sorted(run.iterations.odd.items())
        for number, counts in sorted(by_number.items())
    ]
    return model.IterationCounts(
        marker=re.sub(r"[\x00-\x1f]", " ", run.iterations.marker)[:200],
        num_iterations=dict(run.iterations.num_iterations),
        usual=dict(run.iterations.usual),
        odd=tuple(odd[:MAX_ODD_ITERATIONS]),
    )
