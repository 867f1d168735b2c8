"""What rules about a run have in common: names of ranks and nodes, clock times, evidence."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from allready.judging.analysis import Analysis
from allready.judging.places import MAX_NAMED, Place, ranks_at
from allready.judging.processes import overcome
from allready.judging.stated import stated
from allready.judging.values import grouped
from allready.model import (
    Confidence,
    Event,
    Evidence,
    Hit,
    Origin,
    ProcessStack,
    Recorder,
    Role,
    RunEvidence,
    clock_time,
)
from allready.signatures import load
from allready.signatures.names import LAUNCHERS
from allready.signatures.watchdog import ERRORS, TIMEOUTS


def who(run: RunEvidence, rank_numbers: Iterable[int], *, with_processes: bool = True) -> str | None:
    """`rank 2 (gpu02, pid 1037)`, `rank 0-7 (node 0, 1)`, None of no rank.

    with_processes: each with its process, where they are few; of those who are not accused the nodes do.
    """
    asked = set(rank_numbers)
    names = {number: name for name, number in run.node_numbers.items()}
    at = {r: run.node_of_rank[r] for r in asked if r in run.node_of_rank}
    places = {r: Place(node=n, host=_host_of(names, n, is_numbered=run.is_numbered)) for r, n in at.items()}
    if with_processes and len(asked) <= MAX_NAMED:
        places |= {r: _with_process(run, r, places.get(r, Place())) for r in asked}
    return ranks_at(asked, places)


def _host_of(names: Mapping[int, str], node: int, *, is_numbered: bool) -> str:
    """The name of a node; "" where it is only its number."""
    name = names.get(node, "")
    return "" if is_numbered and name == f"node{node}" else name


def _with_process(run: RunEvidence, rank: int, place: Place) -> Place:
    """The place with the host and the pid of the rank's process; of one that was started again no pid is the one."""
    processes = [p for p in run.processes if p.rank == rank]
    pids = {p.pid for p in processes} | {s.pid for s in run.stacks if s.rank == rank and s.role == "rank"}
    pids |= {d.pid for d in run.deaths if d.rank == rank and not d.earlier}
    pids -= {None}
    hosts = {p.host for p in processes if p.host}
    return Place(
        node=place.node, host=hosts.pop() if len(hosts) == 1 else place.host, pid=pids.pop() if len(pids) == 1 else None
    )


def evidence(origin: Origin | None, text: str, time_s: float | None = None) -> Evidence:
    """A piece of evidence that names its source."""
    text, time = text[:400], clock_time(time_s)
    if origin is None:
        return Evidence(source="", text=text, time=time)
    return Evidence(source=str(origin), text=text, time=time, file=origin.source, line=origin.line)


def stack_evidence(stack: ProcessStack) -> Evidence:
    """What a process was doing, by its stack."""
    return stated(
        str(stack.origin),
        "pid {pid}[[: {activity} at {site}|: {activity}|, at {site}]]",
        time=clock_time(stack.time_s),
        pid=stack.pid,
        activity=stack.activity or stack.error or None,
        site=stack.site,
    )


def hit_of_lines(events: Sequence[Event], **changes: Any) -> Hit:
    """A hit that is shown by lines, the first eight; it began with the earliest.  `changes`: fields of the hit."""
    times = (e.time_s for e in events if e.time_s is not None)
    known: dict[str, Any] = {
        "evidence": tuple(evidence(e.origin, e.text, e.time_s) for e in events[:8]),
        "fault_time": clock_time(min(times, default=None)),
        "confidence": Confidence.POSSIBLE,
    }
    return Hit(**(known | changes))


def onset(run: RunEvidence) -> float | None:
    """When the hang began, in seconds since 1970: a watchdog speaks one timeout later."""
    found = []
    for event in run.events:
        ran = event.values.get("ran_ms", "")
        if event.signature in TIMEOUTS and event.time_s is not None and ran.isdecimal():
            found.append(event.time_s - int(ran) / 1000)
    if found:
        return min(found)
    created = [
        p.stuck.created_s
        for g in run.progress
        for p in g.positions.values()
        if p.stuck is not None and p.stuck.created_s is not None
    ]
    return min(created, default=None)


def nodes_wholly(run: RunEvidence, rank_numbers: Sequence[int]) -> tuple[int, ...]:
    """Nodes all of whose known ranks are among `rank_numbers`, if these nodes account for every one of them."""
    named = set(rank_numbers)
    by_node = grouped((node, rank) for rank, node in run.node_of_rank.items())
    whole = tuple(sorted(n for n, members in by_node.items() if named.issuperset(members)))
    covered = {r for n in whole for r in by_node[n]}
    return whole if named and covered == named and len(whole) < len(by_node) else ()


def by_signature(case: Analysis) -> dict[str, tuple[Event, ...]]:
    """Events of one kind together: hundreds of rules ask for theirs."""
    return grouped((event.signature, event) for event in case.run.events)


WAITED = TIMEOUTS | ERRORS | {
    "torch.blocking_wait_timeout", "torch.heartbeat_abort", "torch.monitored_barrier",
    "torch.store_collective_missing", "torch.desync_report", "torch.pg_status", "gloo.recv_timeout",
    "gloo.closed_after_timeout", "store.wait_timeout", "jax.barrier_timeout", "jax.kv_timeout",
    "jax.rendezvous_terminated",
}  # fmt: skip
"""Signatures of lines by which a rank says that it gave up waiting, or that a collective failed."""


def has_stopped(case: Analysis) -> bool:
    """Whether anything says that the run made no progress or ended badly: records alone may be a glance at a moving
    job."""
    return (
        bool(case.run.deaths)
        or any(e.signature in WAITED for e in case.run.events)
        or any(
            p.source == Recorder.WATCHDOG
            or (p.source == Recorder.RAS and (p.complete or p.absent))
            or any(q.error for q in p.positions.values())
            for p in case.run.progress
        )
    )


TIME_TO_SPEAK_S = 5.0
"""A rank that lives so long after another gave up waiting had time to say so: torch's threads look every second."""


def speaks_beside_its_launcher(run: RunEvidence, sources: Iterable[str]) -> bool:
    """Whether words of ranks stand in a file in which a launcher speaks as well: then a rank of which only its launcher
    speaks said nothing.  Else its output may be in a file that was not given."""
    launchers = {d.origin.source for d in run.deaths if d.by_launcher}
    launchers |= {e.origin.source for e in run.events if e.family in LAUNCHERS}
    return any(source in launchers for source in sources)


def has_grave_root(case: Analysis) -> bool:
    """Some line states a first cause, and a grave one."""
    signatures = load()
    return any(
        e.role is Role.ROOT
        and (signature := signatures.get(e.signature)) is not None
        and signature.severity.is_fault
        and not overcome(case, signature, e)
        for e in case.run.events
    )
