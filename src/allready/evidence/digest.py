"""What a report keeps of a run: rows per rank, the timeline on one clock, sums over the sources."""

import bisect
import functools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from allready import model
from allready.patterns import compiled
from allready.redaction import masked
from allready.signatures import load
from allready.text.run_events import say_event, say_positions

MAX_ROWS = 4096
MAX_EVENTS = 4000
MAX_CHARS = 300
MAX_SOURCES = 500
MAX_ODD_ITERATIONS = 200
MAX_STACKS = 64
MAX_FRAMES = 48
_GRAVE = {model.Role.ROOT, "death"}
_OWN = r"0x[0-9a-fA-F]+|\b\d{4,}\b|\[\d+\]"
"""What differs between lines that mean the same: addresses, process numbers, ports, a rank in brackets."""


def digest(run: model.RunEvidence, *, onset_s: float | None = None) -> model.RunSummary:
    """Small enough for report.json, however much was read."""
    sources = sorted(run.sources, key=lambda s: (s.problem is None, -s.num_understood, s.path))
    return model.RunSummary(
        ranks=tuple(islice(_rows(run), MAX_ROWS)),
        timeline=_timeline(run),
        clocks=run.clocks,
        sources=tuple(sources[:MAX_SOURCES]),
        benches=run.benches[:16],
        closing=run.closing,
        iterations=_iterations(run),
        stacks=_stacks(run),
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
    stacks = _stack_of_rank(run)
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
    end = _end(run, rank, death)
    positions = () if rank is None else tuple(_positions(run, rank))
    return model.RankRow(
        rank=rank,
        node=None if rank is None else run.node_of_rank.get(rank),
        host=p.host,
        pid=p.pid if p.pid is not None else (stack.pid if stack else None),
        gpu=_gpu(p),
        gpu_index=_gpu_index(p),
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
        groups=say_positions(positions, "en"),
        group_counts={p.called: p.counts for p in positions if p.counts},
        phases_s=dict(p.phases_s),
        activity=f"{stack.activity} {stack.site or ''}".strip() if stack else "",
        ending=say_event(end, "en") if end is not None else "",
        last_line=(p.last_line or "")[:300],
        last_line_class=p.last_line_class or "",
        last_source=str(p.last_origin) if p.last_origin else "",
        end=end,
        positions=positions,
        activity_kind=stack.activity if stack else "",
        site=str(stack.site or "") if stack else "",
    )


def _stack_of_rank(run: model.RunEvidence) -> dict[int, model.ProcessStack]:
    """The first of each."""
    return {s.rank: s for s in reversed(run.stacks) if s.rank is not None and s.role == "rank"}


def _stacks(run: model.RunEvidence) -> tuple[model.StackGroup, ...]:
    """Main threads, equal ones together."""
    equal: dict[tuple[str, ...], list[model.ProcessStack]] = defaultdict(list)
    for _, stack in sorted(_stack_of_rank(run).items()):
        thread = next((t for t in stack.threads if t.is_main), stack.threads[0] if stack.threads else None)
        if thread is not None and thread.frames:
            equal[tuple(map(_frame, thread.frames))].append(stack)
    found = [
        model.StackGroup(
            ranks=tuple(s.rank for s in stacks if s.rank is not None),
            frames=frames[:MAX_FRAMES],
            activity_kind=stacks[0].activity,
            source=str(stacks[0].origin),
            num_left_out=max(0, len(frames) - MAX_FRAMES),
        )
        for frames, stacks in equal.items()
    ]
    return tuple(sorted(found, key=lambda s: (len(s.ranks), s.ranks))[:MAX_STACKS])


def _frame(frame: model.Frame) -> str:
    line = "" if frame.line is None else f":{frame.line}"
    return f"{frame.file}{line} {frame.function}".strip()[:MAX_CHARS]


def _gpu(process: model.ProcessRecord) -> str:
    number = _gpu_index(process)
    return "" if number is None else f"{number}" + (f" ({process.bus_id})" if process.bus_id else "")


def _gpu_index(process: model.ProcessRecord) -> int | None:
    return process.nvml_dev if process.nvml_dev is not None else process.cuda_dev


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


def _positions(run: model.RunEvidence, rank: int) -> Iterator[model.GroupPosition]:
    for group in run.progress:
        name = group.label or group.group
        position = group.positions.get(rank)
        if position is not None:
            yield model.GroupPosition(
                group=name,
                source=group.source,
                enqueued=position.enqueued,
                completed=position.completed,
                waits=_waits(group, position.stuck) if position.stuck is not None else None,
                error=position.error or "",
                counts=dict(position.counts),
            )
        elif rank in group.absent:
            yield model.GroupPosition(group=name, source=group.source, absent=group.absent[rank])


def _waits(group: model.GroupProgress, operation: model.Operation) -> model.RunEvent:
    return model.RunEvent(
        kind=model.Happening.WAITS, operation=operation.name, seq=operation.seq, group=group.label or group.group
    )


def _end(run: model.RunEvidence, rank: int | None, death: model.Death | None) -> model.RunEvent | None:
    if rank is None:
        return None
    if death is not None:
        return _died(death)
    if rank in run.ended_well:
        return model.RunEvent(kind=model.Happening.ENDED_WELL)
    stuck = ((g, p.stuck) for g in run.progress if (p := g.positions.get(rank)) is not None)
    return next((_waits(g, operation) for g, operation in stuck if operation is not None), None)


def _died(death: model.Death) -> model.RunEvent:
    is_told = bool(death.text or death.signal or death.exit_code is not None)
    text = (death.text if is_told else str(death.kind))[:MAX_CHARS]
    return model.RunEvent(
        kind=model.Happening.DIED,
        text=text,
        shape=compiled(_OWN).sub("#", masked(text) or death.signal or ""),
        signal=death.signal,
        exit_code=death.exit_code,
        last_error=death.last_error,
        by_launcher=death.by_launcher,
    )


class _Draft(NamedTuple):
    """An event that may be left out: of many thousands most are, and to make one takes longer than to sort it."""

    time_s: float | None
    role: str
    made: Callable[[], model.TimelineEvent]


def _timeline(run: model.RunEvidence) -> tuple[model.TimelineEvent, ...]:
    """Everything with a time, on the reference node's clock; root causes are kept when there is too much."""
    shifts = {clock.node: -clock.offset_s for clock in run.clocks}
    found = sorted(_drafts(run, shifts), key=_when)
    if len(found) > MAX_EVENTS:
        grave = [d for d in found if d.role in _GRAVE][: MAX_EVENTS // 2]
        rest = [d for d in found if d.role not in _GRAVE]
        half = (MAX_EVENTS - len(grave)) // 2
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

    ends = sorted({death.text[:MAX_CHARS] for death in run.deaths if death.text})
    for event in run.events:
        node = _node(run, event.origin.rank, event.origin.node or event.origin.host)
        yield draft(_of_event, event.time_s, event.role, node, event, ends)
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


def _of_event(
    event: model.Event, ends: Sequence[str], *, time_s: float | None, node: int | None, shift_s: float
) -> model.TimelineEvent:
    signature = load().get(event.signature)
    text = event.text[:MAX_CHARS]
    code = signature.code if signature else None
    return model.TimelineEvent(
        time_s=time_s,
        role=str(event.role),
        text=text,
        rank=event.origin.rank,
        node=node,
        code=code,
        source=str(event.origin),
        shift_s=shift_s,
        count=event.count,
        event=model.RunEvent(
            kind=model.Happening.LOGGED, text=text, shape="" if code else compiled(_OWN).sub("#", masked(text))
        ),
        is_echo=_begins_one(text, ends),
    )


def _begins_one(text: str, ends: Sequence[str]) -> bool:
    """Whether any of the sorted `ends` begins with `text`."""
    at = bisect.bisect_left(ends, text)
    return bool(text) and at < len(ends) and ends[at].startswith(text)


def _of_death(death: model.Death, *, time_s: float | None, node: int | None, shift_s: float) -> model.TimelineEvent:
    end = _died(death)
    return model.TimelineEvent(
        time_s=time_s,
        role="death",
        text=say_event(end, "en"),
        rank=death.rank,
        node=node,
        source=str(death.origin),
        shift_s=shift_s,
        event=end,
    )


def _of_comm(
    process: model.ProcessRecord, comm: model.CommRecord, *, time_s: float | None, node: int | None, shift_s: float
) -> model.TimelineEvent:
    ended, started = comm.completed_s, comm.started_s
    event = model.RunEvent(kind=model.Happening.INITIALISED, group=comm.comm_id or comm.comm)
    return model.TimelineEvent(
        time_s=time_s,
        role="operation",
        text=say_event(event, "en"),
        rank=process.rank,
        node=node,
        shift_s=shift_s,
        duration_s=None if ended is None or started is None else max(0.0, ended - started),
        event=event,
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
    stuck, end_s = position.stuck, _seen_until_s(run)
    assert stuck is not None
    event = _waits(group, stuck)
    return model.TimelineEvent(
        time_s=time_s,
        role="operation",
        rank=rank,
        node=node,
        text=say_event(event, "en", of_group=True),
        source=str(position.origin or group.source),
        shift_s=shift_s,
        duration_s=None if end_s is None or stuck.created_s is None else max(0.0, end_s - stuck.created_s),
        event=event,
    )


def _seen_until_s(run: model.RunEvidence) -> float | None:
    """When the evidence ends: the last line of any log, or the last stack."""
    times = [run.last_time_s, *(stack.time_s for stack in run.stacks)]
    return max((time_s for time_s in times if time_s is not None), default=None)


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
