from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.hang import HangKind
from allready.judging.places import num_ranks
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import evidence, who
from allready.judging.signs import Sign
from allready.judging.stall import StallKind
from allready.judging.stated import doing_words, stated
from allready.judging.values import shared
from allready.judging.wait_words import call_of
from allready.model import (
    PROCESSES,
    Confidence,
    Culprits,
    Event,
    FaultClass,
    Hit,
    Live,
    Recorder,
    RemedyStep,
    Role,
    RunEvidence,
    Severity,
    clock_time,
)
from allready.rules.hang._hits import blamed, hit_of
from allready.signatures.watchdog import TIMEOUTS


@Rule(
    code="HNG005",
    severity=Severity.ERROR,
    fault_class=FaultClass.NET_BROKEN,
    layer=Layer.TRANSPORT,
    applies=Applies.RUN,
    unless=(Sign.OTHER_CALLS,),
    title="All ranks entered the same operation, and it never completed",
    message="{who} all entered {operation} and none completed it[[ in {waited} s]]: the cause is the network or a "
    "GPU, not the script",
    remedy=(
        RemedyStep(explanation="find the bad pair, on the same nodes", command="allready check", where="every node"),
        RemedyStep(shared="kernel_log"),
        RemedyStep(shared="gpu_ecc"),
        RemedyStep(shared="link_errors"),
    ),
)
def all_entered(case: Analysis, live: Live | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    Every member of the group has entered the same operation with equal arguments, and none completed it; in a running
    job for longer than --hang-after.
    ## Why it matters
    Then no rank is missing: bytes do not arrive, or a GPU does not run its kernel.  Which one cannot be seen in the
    records of operations.
    ## Check by hand
    Kernel logs of all nodes at that time; socket queues (`ss -tin`) or IB counters while it hangs.
    ## When it is harmless
    When the dumps were taken in the middle of a long operation: compare its age with its size.
    """
    found = blamed(case, HangKind.LEVEL)
    if found is None:
        return
    blame, _, wait = found
    if live is not None and blame.for_s < live.hang_after_s:
        return
    yield hit_of(
        case,
        blame,
        values={
            "who": who(case.run, wait.waiting, with_processes=False),
            "operation": call_of(case.run, wait, with_arguments=True),
        },
        severity=Severity.WARNING if live is None and blame.is_glance else None,
        confidence=Confidence.POSSIBLE,
        evidence=tuple(
            stated(wait.source, "rank {rank}: in {call}", rank=r, call=wait.operation.numbered)
            for r in wait.waiting[:8]
        ),
    )


@Rule(
    code="HNG001",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.STALL,
    applies=Applies.OFFLINE,
    title="A rank did not enter the operation that the others wait in",
    message="{who} never entered {operation}[[: {doing}]][[ at {site}]]; {waiting} waited[[ {waited} s]] for "
    "{who:it/them}",
    remedy=(
        RemedyStep(
            explanation="look at what {who} did then[[: {site}]]. Raising the time-out does not help a rank that never "
            "comes"
        ),
        RemedyStep(shared="stack"),
        RemedyStep(shared="process_state"),
    ),
)
def did_not_enter(case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    For every group how far each rank came (flight-recorder dumps, watchdog lines, RAS counters, counted log lines), and
    with several groups who waits for whom: the ranks that others wait for and that wait for no other rank.  Stacks,
    RAS and the ends of processes then say what these ranks did instead.
    ## Why it matters
    Everyone who waits prints a time-out; the one who is waited for prints nothing, and no log names it.
    ## Check by hand
    Compare "last enqueued work" of all ranks: the lowest did not come.  Then look at that rank's stack.
    ## When it is harmless
    When the rank was still at work (saving, tokenising, compiling) and the time-out was too short for it: then the
    fault class says CPU-BUSY.
    """
    found = blamed(case, HangKind.LATE)
    if found is None:
        return
    blame, _, _ = found
    doing = shared(cause.shown_by or doing_words(cause.doing) for cause in blame.causes)
    site = shared(cause.site for cause in blame.causes)
    values: dict[str, object] = {"doing": doing or None, "site": site or None}
    has_ended = {cause.kind for cause in blame.causes} <= {StallKind.LEAVING, StallKind.DIED}
    are_gone = has_ended and not any(stack.rank in blame.ranks for stack in case.run.stacks)
    yield hit_of(
        case,
        blame,
        values=values | ({PROCESSES: ()} if are_gone else {}),
        fault_class=shared(cause.fault_class for cause in blame.causes) or FaultClass.CPU_STUCK,
        confidence=min((cause.confidence for cause in blame.causes), key=lambda c: c.weight),
    )


@Rule(
    code="HNG012",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DESYNC_FLOW,
    layer=Layer.DESYNC,
    applies=Applies.OFFLINE,
    unless=(Sign.OTHER_CALLS,),
    title="Ranks waited in an operation that others completed",
    message="{who} waited[[ {waited} s]] in {operation}; {others} had completed it and gone on to #{later}: the ranks "
    "did not make the same calls",
    remedy="find the first call that differs: give allready flight-recorder dumps of all ranks "
    "(TORCH_FR_BUFFER_SIZE=2000, TORCH_NCCL_DUMP_ON_TIMEOUT=1), or run with TORCH_DISTRIBUTED_DEBUG=DETAIL. Look for a "
    "branch on rank or data, batches of different numbers or lengths, parameters that only some ranks use",
)
def completed_elsewhere(case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    Watchdog lines of one group: a rank waited a whole time-out in an operation that no rank completes before all have
    entered it, while another rank went through that number and the next.
    ## Why it matters
    One order of calls per group, by number: the two ranks' operations were not the same ones, whatever their names.
    No rank is missing, and neither the network nor the time-out is at fault.
    ## Check by hand
    `last enqueued` and `last completed` of all ranks, and the kind of operation with each number.
    ## When it is harmless
    Never.  Which of the two is out of step cannot be seen in their last lines, so no rank is accused.
    """
    found = blamed(case, HangKind.APART)
    if found is None or found[2].progress is None:
        return
    blame, _, wait = found
    stuck = min(wait.elsewhere.values(), key=lambda o: o.seq)
    positions = wait.progress.positions
    yield hit_of(
        case,
        blame,
        culprits=Culprits(),
        values={
            "operation": call_of(case.run, wait, stuck, with_arguments=True),
            "seq": stuck.seq,
            "others": who(case.run, wait.waiting, with_processes=False),
            "later": wait.operation.seq,
        },
        confidence=Confidence.LIKELY,
        evidence=tuple(
            stated(
                str(p.origin) if p.origin else wait.source,
                "rank {rank}: last completed {completed}[[, gave up in {stuck}]]",
                time=clock_time(p.time_s),
                rank=r,
                completed=p.completed,
                stuck=p.stuck.numbered if p.stuck is not None else None,
            )
            for r in (*sorted(wait.elsewhere)[:4], *wait.waiting[:4])
            for p in (positions[r],)
        ),
    )


LEFT = "torch.not_destroyed"
SURELY_BEFORE_S = 2.0
"""Who gave up waiting ends its process, and others with it: what they say on leaving comes in the same moment."""


@Rule(
    code="HNG015",
    severity=Severity.ERROR,
    fault_class=FaultClass.DESYNC_FLOW,
    layer=Layer.SILENCE,
    applies=Applies.OFFLINE,
    unless=(Sign.PROCESS_END, Sign.OTHER_CALLS, Sign.ROOT_LINE),
    title="A rank finished its program while others waited in a collective",
    message="{left} finished {left:its/their} program while {waiting} waited[[ {waited} s]] in [[{operation} "
    "#{seq}|{operation}|an operation]], which {left:it/they} can never enter; the ranks do not make the same calls to "
    "the end",
    remedy="make all ranks call the same operations equally often: equally many batches on each (drop_last, "
    "DistributedSampler, DDP's join()), no sys.exit() or return on some of them, nothing that communicates under "
    "'if rank == 0' (saving, evaluation); a barrier before the end shows who is late. Where nearly all have left, look "
    "at what the one that waits does alone",
)
def left_early(run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks whose process group was taken down at the end of their program, before the time-out of others that still
    waited in an operation of all ranks.
    ## Why it matters
    The rank that exited cannot take part any more, and wrote no error; those who report the time-out did nothing
    wrong by waiting.  Which side is the wrong one, the lines do not tell.
    ## Check by hand
    `grep -n "destroy_process_group" LOGS`: who wrote it, and how long before the first time-out?
    ## When it is harmless
    When what is waited for belongs to a group that the rank is not in.
    """
    waits = [e for e in run.events if e.signature in TIMEOUTS and e.role is not Role.CASCADE and _is_of_all(e, run)]
    waiting = {e.origin.rank for e in waits if e.origin.rank is not None}
    first_s = min((e.time_s for e in waits if e.time_s is not None), default=None)
    if first_s is None or not waiting:
        return
    dead = {d.rank for d in run.deaths if not d.by_launcher}
    left = [
        e
        for e in run.events
        if e.signature == LEFT
        and e.origin.rank is not None
        and e.origin.rank not in waiting | dead
        and e.time_s is not None
        and e.time_s < first_s - SURELY_BEFORE_S
    ]
    if not left:
        return
    wait = min(waits, key=lambda e: (e.time_s is None, e.time_s or 0.0))
    yield Hit(
        values={
            "left": who(run, (e.origin.rank for e in left if e.origin.rank is not None)),
            "waiting": num_ranks(waiting),
            "waited": f"{int(ran) / 1000:.0f}" if (ran := wait.values.get("ran_ms", "")).isdecimal() else None,
            "operation": wait.values.get("op") or None,
            "seq": wait.values.get("seq") or None,
        },
        confidence=Confidence.LIKELY,
        evidence=tuple(evidence(e.origin, e.text, e.time_s) for e in (*left[:4], *waits[:4])),
        fault_time=clock_time(left[0].time_s),
    )


def _is_of_all(event: Event, run: RunEvidence) -> bool:
    """Whether the rank has the same number in the group as in the job, and its lines name no group but that of all:
    rank 0 of a smaller group is often rank 0 of the job."""
    rank, number = event.origin.rank, event.values.get("group_rank")
    named = [p for p in run.progress if p.source == Recorder.WATCHDOG and p.is_named and rank in p.positions]
    stuck = [p for p in named if p.positions[rank or 0].gave_up]
    return rank is not None and number in {None, str(rank)} and all(p.members for p in stuck)
