"""What files of a run tell of a rank that others gave up waiting for: its stack, its end, RAS and its silence."""

from allready.evidence.stacks.meaning import frames_text
from allready.judging.analysis import Analysis
from allready.judging.run_signs import WAITED, evidence
from allready.judging.stall import BUSY, LEAVING, STUCK, StallCause, StallKind
from allready.judging.stated import said, stated
from allready.judging.waits import WaitSnapshot
from allready.model import (
    Absence,
    CallSite,
    Confidence,
    Death,
    Event,
    Evidence,
    FaultClass,
    Phrase,
    Recorder,
    Role,
    RunEvidence,
    clock_time,
)
from allready.patterns import compiled
from allready.signatures.names import OF_LIBRARY
from allready.signatures.watchdog import ERRORS, TIMEOUTS

CLOSED = {"nccl.peer_closed", "nccl.peer_reset", "gloo.peer_closed"}
RAISED = ERRORS
"""What torch writes when a connection was lost: no giving up."""

SOON_S = 5.0
"""A connection that is closed this soon after a rank's last line was rather closed by what ended the rank."""
MAX_EVIDENCE = 4


def stall_by_files(case: Analysis, rank: int, snapshot: WaitSnapshot) -> StallCause:
    """Why a rank did not come, by its stack, its end, RAS and its silence: the first case that fits."""
    run = case.run
    doing, site, shown = _stack(run, rank)
    shown_by: Phrase | None = None
    left = None if doing else left_early(run, rank)
    call_of_two = None if doing or left is not None else _in_a_call_of_two(run, rank)
    if left is not None:
        doing, shown_by = left[:2]
        shown.append(left[2])
    elif call_of_two is not None:
        shown_by = call_of_two[0]
        shown.append(call_of_two[1])
    silent = {p.absent[rank] for p in run.progress if rank in p.absent}
    shown += [
        stated(str(p.origin or ""), "RAS: rank {rank} is {state}", rank=rank, state=p.absent[rank])
        for p in run.progress
        if p.absent.get(rank) in {Absence.UNRESPONSIVE, Absence.DEAD}
    ]
    has_output = case.of(_has_output)
    kind, fault_class, is_sure = StallKind.UNKNOWN, FaultClass.CPU_STUCK, True
    if call_of_two is not None:
        kind, fault_class = StallKind.ELSEWHERE, FaultClass.DESYNC_FLOW
        # Its first one: too many where the others kept to their loop, else perhaps missing there.
        is_sure = all(run.turns.get(r) for wait in snapshot.waits_for(rank) for r in wait.waiting)
    elif doing in BUSY or (not doing and _works_alone(run, rank, snapshot)):
        kind, fault_class = StallKind.WORK, FaultClass.CPU_BUSY
    elif doing in LEAVING or rank in run.ended_well:
        kind, fault_class = StallKind.LEAVING, FaultClass.DESYNC_FLOW
        is_sure = left is None or has_output  # an exception, which only the output tells, takes it down as well
    elif not doing and case.of(peer_ended):  # a connection was closed from the other end
        kind, fault_class = StallKind.DIED, FaultClass.DEAD
        is_sure = has_output or _closed_soon(run, rank)  # else perhaps when all made no progress and the job was ended
    elif doing not in STUCK and Absence.UNRESPONSIVE not in silent:
        # A rank whose other files are here and that left no trace beside its peers is silent; else files may lack.
        is_sure = snapshot.frozen and (rank not in snapshot.unseen or _has_files(run, rank))
    sure = Confidence.LIKELY if is_sure else Confidence.POSSIBLE
    if fault_class is FaultClass.CPU_STUCK and doing in STUCK - {"user_idle", "user_code"}:
        sure = Confidence.CERTAIN
    return StallCause(
        rank=rank,
        kind=kind,
        fault_class=fault_class,
        confidence=sure,
        doing=doing,
        site=site,
        shown_by=shown_by,
        evidence=tuple(shown[:MAX_EVIDENCE]),
    )


def _stack(run: RunEvidence, rank: int) -> tuple[str, CallSite | None, list[Evidence]]:
    """What its stacks show: a word, the place, and the frames."""
    doing, site = "", None
    shown: list[Evidence] = []
    for stack in run.stacks:
        if stack.rank != rank or stack.role not in {"rank", "other"}:
            continue
        doing, site = stack.activity, stack.site
        main = next((t for t in stack.threads if t.is_main), stack.threads[0] if stack.threads else None)
        frames = frames_text(main.frames) if main else stack.error
        shown.append(
            stated(
                str(stack.origin or ""),
                "rank {rank} main thread: {frames}",
                time=clock_time(stack.time_s),
                rank=rank,
                frames=(frames or "")[:400],
            )
        )
    return doing, site, shown


def left_early(run: RunEvidence, rank: int) -> tuple[str, Phrase, Evidence] | None:
    """(what, in words, evidence) of a rank that had gone in order while others waited; None where nothing shows it."""
    torn_down = _torn_down(run, rank)
    if torn_down is not None:
        shown = evidence(torn_down.origin, f"rank {rank}: {torn_down.text}", torn_down.time_s)
        return "exit", said("its communicator was torn down"), shown
    signal = _not_signalled(run, rank)
    if signal is not None:
        pids = ", ".join(str(d.pid) for d in run.deaths if d.by_launcher and d.origin.source == signal.origin.source)
        shown = stated(
            str(signal.origin or ""),
            "the launcher signalled only {pids}: rank {rank} had ended",
            time=clock_time(signal.time_s),
            pids=pids,
            rank=rank,
        )
        return "exit", said("its process had ended with exit code 0"), shown
    return None


def _torn_down(run: RunEvidence, rank: int) -> Event | None:
    """The line with which a rank took its communicator down before any rank gave up waiting, or was ended.

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


def _not_signalled(run: RunEvidence, rank: int) -> Death | None:
    """The launcher's signal to another rank of its node, when it sent none to this one, whose process is known.

    torchrun signals all ranks that still run, and would have reported this one if it had failed.
    """
    if any(d.rank == rank for d in run.deaths):
        return None
    node = run.node_of_rank.get(rank)
    pids = {p.pid for p in run.processes if p.rank == rank and p.pid is not None}
    signals = [d for d in run.deaths if d.by_launcher and d.pid is not None and d.rank is not None]
    same = [d for d in signals if node is not None and run.node_of_rank.get(d.rank or 0) == node]
    return same[0] if pids and same and not any(d.pid in pids for d in signals) else None


def _in_a_call_of_two(run: RunEvidence, rank: int) -> tuple[Phrase, Evidence] | None:
    """The rank gave up in send or recv: for its first one to a peer torch makes a communicator of two, by a key of both
    ranks, and the peer did not come to it."""
    for death in run.deaths:
        if death.rank == rank and (match := compiled(_KEY_OF_TWO).search(death.text)) and str(rank) in match.groups():
            shown = evidence(death.origin, f"rank {rank}: {death.text[:300]}", death.time_s)
            peer = match[2] if match[1] == str(rank) else match[1]
            form = "it waited in send or recv for rank {peer}[[ at {site}]]"
            return said(form, peer=peer, site=death.site), shown
    return None


_KEY_OF_TWO = r"retrieving ncclUniqueId from \[\d+\] via c10d key-value store by key '(\d+):(\d+)'"


def _time(event: Event) -> float:
    return event.time_s or 0.0


def peer_ended(case: Analysis) -> bool:
    """A rank lost a connection because the process at the other end was gone; a stopped one closes nothing.

    Not when that came after a rank had given up waiting or the job was asked to end: then it is how it was ended.
    """
    run = case.run
    if any(
        position.error is not None and "remote process exited" in position.error
        for progress in run.progress
        for position in progress.positions.values()
    ):
        return True
    over_s = _over_from(run)
    timed_out = any(e.signature in TIMEOUTS and e.role is not Role.CASCADE for e in run.events)
    return any(not timed_out if e.time_s is None else over_s is None or e.time_s < over_s for e in _closings(run))


def _closings(run: RunEvidence) -> list[Event]:
    return [e for e in run.events if e.signature in CLOSED and e.role is Role.CASCADE]


def _over_from(run: RunEvidence) -> float | None:
    """When the first gave up waiting or was asked to end."""
    times = [e.time_s for e in run.events if e.signature in WAITED - RAISED | {"elastic.death_signal"}]
    times += [d.time_s for d in run.deaths if d.by_launcher]
    return min((t for t in times if t is not None), default=None)


def _closed_soon(run: RunEvidence, rank: int) -> bool:
    """Whether a connection was closed within seconds of the rank's last line."""
    last = max((p.last_time_s for p in run.processes if p.rank == rank and p.last_time_s is not None), default=None)
    closed = min((e.time_s for e in _closings(run) if e.time_s is not None), default=None)
    return last is not None and closed is not None and closed <= last + SOON_S


def _has_output(case: Analysis) -> bool:
    """Whether more than NCCL's own logs was read of the job: there exceptions are reported."""
    return bool(case.run.deaths) or not {e.family for e in case.run.events} <= OF_LIBRARY


def _works_alone(run: RunEvidence, rank: int, snapshot: WaitSnapshot) -> bool:
    """Its output shows it tokenising, indexing or saving; or that of an untold rank, while others wait in a barrier."""
    barrier = any((w.operation.num_elements or 2) == 1 for w in snapshot.waits_for(rank))
    return any(
        e.signature == "torch.single_rank_work" and (e.origin.rank == rank or (e.origin.rank is None and barrier))
        for e in run.events
    )


def _has_files(run: RunEvidence, rank: int) -> bool:
    """Whether something that this rank wrote was read, or was searched and not found."""
    return (
        any(p.rank == rank and (p.sources or p.last_line) for p in run.processes)
        or any(e.origin.rank == rank for e in run.events)
        or any(s.rank == rank for s in run.stacks)
        or any(p.source == Recorder.RAS and rank in p.absent for p in run.progress)
        or _shares_a_log(run, rank)
    )


def _shares_a_log(run: RunEvidence, rank: int) -> bool:
    """One log has the words of ranks before and after it, so that it would have had its own."""
    found: dict[str, set[int]] = {}
    for event in run.events:
        if event.origin.rank is not None:
            found.setdefault(event.origin.source, set()).add(event.origin.rank)
    return any(len(ranks) > 2 and min(ranks) < rank < max(ranks) for ranks in found.values())
