"""All readings of one run put together: `assemble` makes the `RunEvidence` that rules judge."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from allready.evidence.attempts import KIND as ATTEMPTS
from allready.evidence.flight.join import join_dumps
from allready.evidence.inspector import inspector_lags
from allready.evidence.join.clocks import clock_offsets
from allready.evidence.join.identity import MAX_RANKS, Identities, identify
from allready.evidence.join.ras import ras_progress
from allready.evidence.join.watchdog import watchdog_progress
from allready.evidence.join.zones import in_one_zone
from allready.evidence.reading import Reading
from allready.evidence.stacks.meaning import describe, kind_of_thread
from allready.judging.attempts import AttemptStarts, find_attempts, settle_attempts, with_appended
from allready.judging.calls import LoggedCalls, compare_dumps
from allready.judging.closings import is_denied, job_closing, overruled
from allready.judging.ends import ended_well, merge_deaths
from allready.judging.event_logs import join_event_logs, later_than_recovery
from allready.judging.last_calls import with_last_calls
from allready.judging.pairs import pair_surplus
from allready.judging.roles import settle
from allready.judging.siblings import with_siblings
from allready.judging.strays import stray_exchange
from allready.judging.turns import kept_turns
from allready.judging.values import grouped
from allready.judging.watchdog_calls import watchdog_mismatches
from allready.model import BenchRun, Closing, Death, Event, ProcessStack, RunEvidence, World, WorldNode
from allready.signatures.names import OF_LIBRARY

SAME_END_S = 30.0
"""Lines of a rank this long after its death belong to the same end (its launcher's table, a last flush)."""

MAX_EVENTS = 20_000
"""Events beyond are dropped from the middle: the first and the last tell most."""


def assemble(
    readings: Sequence[Reading], *, since_s: float | None = None, logged: LoggedCalls | None = None
) -> RunEvidence:
    """Join everything that was read.

    Args:
        since_s: leave out events, stacks and deaths from before; what has no time stays, and so does the death of a
            rank that did not come back: it still explains what came after.
        logged: what is remembered of the calls of an earlier time.
    """
    readings = in_one_zone(readings)
    events = [e for r in readings for e in r.events]
    dumps = [d for r in readings for d in r.dumps]
    answers = [a for r in readings for a in r.ras]
    streams = [s for r in readings for s in r.op_streams]
    found_deaths = [d for r in readings for d in r.deaths]
    identities = identify((p for r in readings for p in r.processes), events, found_deaths, answers)
    flight = join_dumps(dumps)
    in_dumps = compare_dumps(flight, identities.node_of_rank)
    memberships = (*(g.members for g in flight.progress), *(g.members for g, _ in flight.groups))
    sizes = (*(g.size for g in flight.progress), *(1 + max(members, default=-1) for members in memberships))
    identities.world_size = max(identities.world_size, 0, *(size for size in sizes if size <= MAX_RANKS))
    operations, in_logs, loops = (logged or LoggedCalls()).of(streams, identities.processes)
    deaths, victims = merge_deaths(found_deaths, identities, events)
    attempts = find_attempts(events, {r.source.path: r.source.num_lines for r in readings}, deaths)
    closings = tuple(r.closing for r in readings if r.closing is not None)
    attempts = with_appended(attempts, closings, events, deaths)
    events_now, deaths = settle_attempts(attempts, events, deaths)
    deaths = overruled(deaths, closings)
    last_closings = [c for c in closings if not attempts.is_over(c.origin.source, c.origin.line, None, None)]
    closing = job_closing(last_closings, deaths, events_now, identities)
    if closing is not None and is_denied(closing, answers, {r.source.path: r.source.last_time_s for r in readings}):
        closing = None
    benches = tuple(b for r in readings for b in r.benches)
    identities.world_size = identities.world_size or max((b.num_ranks for b in benches), default=0)
    # Beside the files of another job, or in front of its steps, good tables say nothing of how that one ended.
    is_only_bench = all(r.benches or not r.source.num_understood for r in readings)
    is_only_bench = is_only_bench and not _works_behind(benches, last_closings)
    well = ended_well(
        identities.processes,
        events,
        deaths,
        identities,
        benches if is_only_bench else (),
        has_output=_has_output(readings),
    )
    joined_logs = join_event_logs([log for r in readings for log in r.event_logs])
    joined_logs, events_now, deaths = later_than_recovery(joined_logs, events_now, deaths)
    identities.world_size = identities.world_size or joined_logs.world_size
    well |= joined_logs.ended_well - {d.rank for d in deaths}
    expected = identities.world_size
    if closing is not None:
        well |= frozenset(range(expected))
    healthy = closing is not None or (bool(expected) and len(well) >= expected)
    times = [t for r in readings if _is_of_the_job(r) for t in (r.source.first_time_s,) if t is not None]
    settled = settle(
        events_now,
        deaths,
        identities,
        well=well,
        healthy=healthy,
        started_s=min(times, default=None),
        span=_span(readings),
        recorded=_recorded(readings),
        victims=victims,
    )
    spoken = watchdog_progress(_of_now(settled, attempts), identities)
    run = RunEvidence(
        sources=tuple(r.source for r in readings),
        events=_thinned(sorted(settled, key=_when)),
        processes=identities.processes,
        progress=(*in_dumps.progress, *spoken, *ras_progress(answers, identities), *operations.progress),
        mismatches=(*in_dumps.mismatches, *in_logs.mismatches, *watchdog_mismatches(spoken, settled)),
        deaths=deaths,
        stacks=tuple(_described(s, identities) for r in readings for s in r.stacks),
        lags=(
            *in_dumps.lags,
            *in_logs.lags,
            *inspector_lags([i for r in readings for i in r.inspections]),
            *joined_logs.lags,
        ),
        clocks=clock_offsets(dumps, identities.processes, identities.node_key_of_rank, identities.node_numbers),
        iterations=in_logs.iterations,
        turns={**loops, **kept_turns(flight.groups)},
        surplus=pair_surplus(flight.groups, identities.node_of_rank),
        stray=stray_exchange(flight.groups, flight.exchanges),
        benches=benches,
        runtime=joined_logs.failures,
        notes=(*flight.notes, *joined_logs.notes),
        expected_ranks=expected,
        node_of_rank=identities.node_of_rank,
        node_numbers=identities.node_numbers,
        is_numbered=identities.is_numbered,
        peers=identities.peers,
        ended_well=well,
        closings=closings,
        closing=closing,
        kinds=frozenset(r.source.kind for r in readings if r.source.num_understood or r.dumps or r.ras or r.stacks),
        last_time_s=max((t for r in readings for t in (r.source.last_time_s,) if t is not None), default=None),
    )
    run = with_siblings(with_last_calls(run, flight.groups), flight.groups)
    return run if since_s is None else _since(run, since_s)


def _of_now(events: Sequence[Event], attempts: AttemptStarts) -> list[Event]:
    """Events of the last attempt."""
    if not attempts.lines and not attempts.times:
        return list(events)
    return [e for e in events if not attempts.is_over(e.origin.source, e.origin.line, e.origin.node, e.time_s)]


def _span(readings: Sequence[Reading]) -> tuple[float, float] | None:
    """First and last time of what the job left: its logs, and dumps of any kind."""
    own = [r.source for r in readings if r.source.kind != "log" or _is_of_the_job(r)]
    times = [t for s in own for t in (s.first_time_s, s.last_time_s) if t is not None]
    return (min(times), max(times)) if times else None


def _recorded(readings: Sequence[Reading]) -> tuple[float, float] | None:
    """First and last time of the job by its launcher's record; None where there is none, or one of several jobs."""
    records = [r.source for r in readings if r.source.kind == ATTEMPTS]
    if len(records) != 1 or records[0].first_time_s is None or records[0].last_time_s is None:
        return None
    return records[0].first_time_s, records[0].last_time_s


def _is_of_the_job(reading: Reading) -> bool:
    """A log that a process of the job wrote: a kernel's log begins when the machine does."""
    if reading.source.kind != "log":
        return False
    return bool(reading.processes) or not reading.events or any(e.family != "kernel" for e in reading.events)


def _described(stack: ProcessStack, identities: Identities) -> ProcessStack:
    activity = describe(stack)
    rank = stack.rank
    if rank is None and stack.pid is not None and stack.role == "rank":
        rank = identities.rank_of(stack.origin.host, stack.pid)
    threads = tuple(replace(t, activity=kind) if (kind := kind_of_thread(t)) else t for t in stack.threads)
    return replace(stack, rank=rank, activity=activity.kind, site=activity.site, threads=threads)


def _when(event: Event) -> tuple[bool, float, str, int]:
    return (event.time_s is None, event.time_s or 0.0, event.origin.source, event.origin.line or 0)


def _thinned(events: Sequence[Event]) -> tuple[Event, ...]:
    if len(events) <= MAX_EVENTS:
        return tuple(events)
    half = MAX_EVENTS // 2
    return (*events[:half], *events[-half:])


def _since(run: RunEvidence, since_s: float) -> RunEvidence:
    def late(time_s: float | None) -> bool:
        return time_s is None or time_s >= since_s

    last: dict[int, float] = {}
    for event in run.events:
        time_s = event.last_time_s or event.time_s
        if event.origin.rank is not None and time_s is not None:
            last[event.origin.rank] = max(last.get(event.origin.rank, time_s), time_s)

    def stays(death: Death) -> bool:
        came_back = death.rank is None or last.get(death.rank, 0.0) > (death.time_s or 0.0) + SAME_END_S
        return late(death.time_s) or not came_back

    return replace(
        run,
        events=tuple(e for e in run.events if late(e.last_time_s or e.time_s)),
        deaths=tuple(d for d in run.deaths if stays(d)),
        stacks=tuple(s for s in run.stacks if late(s.time_s)),
    )


def only_ranks(run: RunEvidence, ranks: frozenset[int]) -> RunEvidence:
    """What these ranks wrote and did, to be shown; never to be judged, since causes lie elsewhere as a rule."""

    def chosen(rank: int | None) -> bool:
        return rank is None or rank in ranks

    return replace(
        run,
        expected_ranks=0,
        events=tuple(e for e in run.events if chosen(e.origin.rank)),
        deaths=tuple(d for d in run.deaths if chosen(d.rank)),
        stacks=tuple(s for s in run.stacks if chosen(s.rank)),
        processes=tuple(p for p in run.processes if chosen(p.rank)),
        node_of_rank={r: n for r, n in run.node_of_rank.items() if r in ranks},
        progress=tuple(
            replace(
                g,
                positions={r: p for r, p in g.positions.items() if r in ranks},
                absent={r: why for r, why in g.absent.items() if r in ranks},
            )
            for g in run.progress
        ),
    )


def world_of(run: RunEvidence) -> World:
    """The job's members as far as the evidence names them: also nodes of which no rank is known."""
    ranks_by_node = grouped((node, rank) for rank, node in sorted(run.node_of_rank.items()))
    names = _names(run)
    num_nodes = max([len(ranks_by_node), *(p.num_nodes or 0 for p in run.processes)], default=0)
    return World(
        num_nodes=num_nodes,
        world_size=run.expected_ranks,
        is_numbered=run.is_numbered,
        nodes=tuple(
            WorldNode(node_rank=node, name=names.get(node, ""), ranks=tuple(ranks_by_node.get(node, ())))
            for node in sorted({*ranks_by_node, *names})
        ),
    )


def _names(run: RunEvidence) -> dict[int, str]:
    """Host names where each node has its own; else whatever distinguishes the nodes."""
    hosts: dict[int, set[str]] = {}
    for process in run.processes:
        node = None if process.rank is None else run.node_of_rank.get(process.rank)
        if node is not None and process.host:
            hosts.setdefault(node, set()).add(process.host)
    everywhere = [name for names in hosts.values() for name in names]
    found = {number: key for key, number in sorted(run.node_numbers.items(), reverse=True)}
    for node, names in hosts.items():
        name = min(names)
        if len(names) == 1 and everywhere.count(name) == 1:
            found[node] = name
    return found


def _has_output(readings: Sequence[Reading]) -> bool:
    """Whether some log is more than NCCL's own: there exceptions are reported."""
    return any(
        r.source.kind == "log"
        and r.source.num_lines > 0
        and (
            not any(p.host is not None for p in r.processes)  # a process that NCCL's own lines name
            or not {e.family for e in r.events} <= OF_LIBRARY
        )
        for r in readings
    )


def _works_behind(benches: Sequence[BenchRun], closings: Iterable[Closing]) -> bool:
    """Whether a job makes steps behind the last table of a file: it tested its network before."""
    last: dict[str, int] = {}
    for bench in benches:
        last[bench.origin.source] = max(last.get(bench.origin.source, 0), bench.origin.line or 0)
    return any((c.progress_line or 0) > last.get(c.origin.source, c.progress_line or 0) for c in closings)
