"""Why a rank that others wait for is late: what its stack, its end, RAS and its silence say."""

import re
from collections.abc import Sequence

from msgspec import Struct

from allready.judging.run_signs import WAITED, evidence
from allready.judging.waits import WaitSnapshot
from allready.model import Absence, Confidence, Death, Event, Evidence, FaultClass, Role, RunEvidence, clock_time

STUCK = {
    "stopped", "lock", "sleep", "io", "data_loading", "subprocess_wait", "network_wait", "user_idle", "user_code"
}  # fmt: skip
BUSY = {"cpu_work", "tokenize", "import_or_compile"}
WAITING = {"in_collective", "gpu_wait"}
LEAVING = {"exit"}
CLOSED = {"nccl.peer_closed", "nccl.peer_reset", "gloo.peer_closed"}
RAISED = {"torch.async_exception"}
"""What torch says when a connection was lost: no giving up."""

OF_LIBRARY = {"nccl", "kernel", "ras"}
SOON_S = 5.0
"""A connection that is closed this soon after a rank's last line was rather closed by what ended the rank."""


class Suspect(Struct, frozen=True, kw_only=True):
    """One rank, and what is known of it.

    `doing`: a word for what its main thread did, "" when no stack shows it; `site`: where.
    """

    rank: int
    fault_class: FaultClass
    confidence: Confidence
    doing: str = ""
    site: str = ""
    evidence: tuple[Evidence, ...] = ()


def suspect(run: RunEvidence, rank: int, picture: WaitSnapshot) -> Suspect:
    """What is known of one rank that others wait for."""
    found: list[Evidence] = []
    doing = site = ""
    for stack in run.stacks:
        if stack.rank != rank or stack.role not in {"rank", "other"}:
            continue
        doing, site = stack.activity, stack.site
        main = next((t for t in stack.threads if t.is_main), stack.threads[0] if stack.threads else None)
        frames = " < ".join(f"{f.function} ({f.file}:{f.line})" for f in main.frames[:4]) if main else stack.error
        found.append(evidence(stack.origin, f"rank {rank} main thread: {frames}", stack.time_s))
    elsewhere = None if doing else left_early(run, rank) or _in_a_call_of_two(run, rank)
    if elsewhere is not None:
        doing, site, shown = elsewhere
        found.append(shown)
    silent = {p.absent[rank] for p in run.progress if rank in p.absent}
    found += [
        evidence(p.origin, f"RAS: rank {rank} is {p.absent[rank]}")
        for p in run.progress
        if p.absent.get(rank) in {Absence.UNRESPONSIVE, Absence.DEAD}
    ]
    fault_class, confidence = FaultClass.CPU_STUCK, Confidence.LIKELY
    if doing in BUSY or (not doing and _works_alone(run, rank, picture)):
        fault_class = FaultClass.CPU_BUSY
    elif doing in LEAVING | {CALL_OF_TWO} or rank in run.ended_well:
        fault_class = FaultClass.DESYNC_FLOW
        if elsewhere is not None and not _has_output(run):
            confidence = Confidence.POSSIBLE  # an exception, which only the output tells, takes it down as well
    elif not doing and peer_ended(run):
        fault_class = FaultClass.DEAD  # somebody's connection was closed from the other end
        if not (_has_output(run) or _closed_soon(run, rank)):
            confidence = Confidence.POSSIBLE  # perhaps when all had stood still and somebody ended the job
    elif doing in STUCK or Absence.UNRESPONSIVE in silent:
        confidence = Confidence.CERTAIN if doing in STUCK - {"user_idle", "user_code"} else Confidence.LIKELY
    elif rank in picture.unseen:
        # A rank whose other files are here and that left no trace beside its peers is silent; else files may lack.
        confidence = Confidence.LIKELY if picture.frozen and _has_files(run, rank) else Confidence.POSSIBLE
    elif not picture.frozen:  # a glance at a moving job looks the same
        confidence = Confidence.POSSIBLE
    return Suspect(
        rank=rank, fault_class=fault_class, confidence=confidence, doing=doing, site=site, evidence=tuple(found[:4])
    )


def left_early(run: RunEvidence, rank: int) -> tuple[str, str, Evidence] | None:
    """(what, where, evidence) of a rank that had gone in order while others waited; None where nothing shows it."""
    torn_down = _torn_down(run, rank)
    if torn_down is not None:
        shown = evidence(torn_down.origin, f"rank {rank}: {torn_down.text}", torn_down.time_s)
        return "exit", "its communicator was torn down", shown
    told = _not_told_to_end(run, rank)
    if told is not None:
        pids = ", ".join(str(d.pid) for d in run.deaths if d.by_launcher and d.origin.source == told.origin.source)
        shown = evidence(told.origin, f"the launcher told only {pids} to end: rank {rank} had ended", told.time_s)
        return "exit", "its process had ended with exit code 0", shown
    return None


def _torn_down(run: RunEvidence, rank: int) -> Event | None:
    """The line with which a rank took its communicator down before anybody gave up waiting, or was ended.

    Lines without times tell no order.
    """
    ends = [e for e in run.events if e.signature == "nccl.aborted" and e.time_s is not None]
    own = min((e for e in ends if e.origin.rank == rank), key=_time, default=None)
    if own is None or any(_time(e) < _time(own) for e in ends):
        return None
    before = [e for e in run.events if e.time_s is not None and _time(e) <= _time(own)]
    if any(e.signature in WAITED or e.role is Role.ROOT for e in before):
        return None
    ended = [d.time_s for d in run.deaths if d.time_s is not None]
    return None if any(t <= _time(own) for t in ended) else own


def _not_told_to_end(run: RunEvidence, rank: int) -> Death | None:
    """The launcher's signal to another rank of its node, when it sent none to this one, whose process is known.

    torchrun signals all that still run, and would have told of one that failed.
    """
    if any(d.rank == rank for d in run.deaths):
        return None
    node = run.node_of_rank.get(rank)
    pids = {p.pid for p in run.processes if p.rank == rank and p.pid is not None}
    told = [d for d in run.deaths if d.by_launcher and d.pid is not None and d.rank is not None]
    same = [d for d in told if node is not None and run.node_of_rank.get(d.rank or 0) == node]
    return same[0] if pids and same and not any(d.pid in pids for d in told) else None


def _in_a_call_of_two(run: RunEvidence, rank: int) -> tuple[str, str, Evidence] | None:
    """The rank gave up in send or recv: for its first one to a peer torch makes a communicator of two, by a key of both
    ranks, and the peer did not come to it."""
    for death in run.deaths:
        if death.rank == rank and (match := _KEY_OF_TWO.search(death.text)) and str(rank) in match.groups():
            shown = evidence(death.origin, f"rank {rank}: {death.text[:300]}", death.time_s)
            return CALL_OF_TWO, death.site or f"with rank {match[2] if match[1] == str(rank) else match[1]}", shown
    return None


CALL_OF_TWO = "send or recv"
_KEY_OF_TWO = re.compile(r"retrieving ncclUniqueId from \[\d+\] via c10d key-value store by key '(\d+):(\d+)'")


def _time(event: Event) -> float:
    return event.time_s or 0.0


def peer_ended(run: RunEvidence) -> bool:
    """Somebody lost a connection because the process at the other end was gone; a stopped one closes nothing.

    Not when that came after somebody had given up waiting or the job was told to end: then it is how it was ended.
    """
    if any(
        position.error is not None and "remote process exited" in position.error
        for progress in run.progress
        for position in progress.positions.values()
    ):
        return True
    over_s = _over_from(run)
    timed_out = any(e.signature == "torch.watchdog_timeout" and e.role is not Role.CASCADE for e in run.events)
    return any(not timed_out if e.time_s is None else over_s is None or e.time_s < over_s for e in _closings(run))


def _closings(run: RunEvidence) -> list[Event]:
    return [e for e in run.events if e.signature in CLOSED and e.role is Role.CASCADE]


def _over_from(run: RunEvidence) -> float | None:
    """When the first gave up waiting or was told to end."""
    times = [e.time_s for e in run.events if e.signature in WAITED - RAISED | {"elastic.death_signal"}]
    times += [d.time_s for d in run.deaths if d.by_launcher]
    return min((t for t in times if t is not None), default=None)


def _closed_soon(run: RunEvidence, rank: int) -> bool:
    """Whether a connection was closed within seconds of the rank's last line."""
    last = max((p.last_time_s for p in run.processes if p.rank == rank and p.last_time_s is not None), default=None)
    closed = min((e.time_s for e in _closings(run) if e.time_s is not None), default=None)
    return last is not None and closed is not None and closed <= last + SOON_S


def _has_output(run: RunEvidence) -> bool:
    """Whether more than NCCL's own logs was read of the job: there exceptions are told."""
    return bool(run.deaths) or any(e.signature.partition(".")[0] not in OF_LIBRARY for e in run.events)


def _works_alone(run: RunEvidence, rank: int, picture: WaitSnapshot) -> bool:
    """Its output shows it tokenising, indexing or saving; or that of an untold rank, while others wait in a barrier."""
    barrier = any((w.operation.num_elements or 2) == 1 for w in picture.waits_for(rank))
    return any(
        e.signature == "torch.single_rank_work" and (e.origin.rank == rank or (e.origin.rank is None and barrier))
        for e in run.events
    )


def _has_files(run: RunEvidence, rank: int) -> bool:
    """Whether something that this very rank wrote was read, or somebody looked for it and did not find it."""
    return (
        any(p.rank == rank and (p.sources or p.last_line) for p in run.processes)
        or any(e.origin.rank == rank for e in run.events)
        or any(s.rank == rank for s in run.stacks)
        or any(p.source == "ras" and rank in p.absent for p in run.progress)
        or _shares_a_log(run, rank)
    )


def _shares_a_log(run: RunEvidence, rank: int) -> bool:
    """One log has the words of ranks before and after it, so that it would have had its own."""
    found: dict[str, set[int]] = {}
    for event in run.events:
        if event.origin.rank is not None:
            found.setdefault(event.origin.source, set()).add(event.origin.rank)
    return any(len(ranks) > 2 and min(ranks) < rank < max(ranks) for ranks in found.values())


def positions(picture: WaitSnapshot, shown: Sequence[int]) -> tuple[Evidence, ...]:
    """How far ranks came, as evidence."""
    found = []
    for wait in picture.waits[:4]:
        if wait.progress is None:
            continue
        for rank in (*shown, *wait.waiting[:3]):
            position = wait.progress.positions.get(rank)
            name = wait.label or wait.group
            if position is None:
                why = wait.why_unseen.get(rank)
                if why is not None:
                    text = f"rank {rank}, group {name}: {why}"
                    found.append(Evidence(source=wait.source, text=text))
                continue
            stuck = f", not through {position.stuck.name} #{position.stuck.seq}" if position.stuck else ""
            done = "" if position.completed is None else f", last completed {position.completed}"
            found.append(
                Evidence(
                    source=str(position.origin) if position.origin else wait.source,
                    text=f"rank {rank}, group {name}: last enqueued {position.enqueued}{done}{stuck}",
                    time=clock_time(position.time_s),
                )
            )
    return tuple(dict.fromkeys(found))[:8]
