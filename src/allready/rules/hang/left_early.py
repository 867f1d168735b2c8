from collections.abc import Iterator

from allready.judging.places import num_ranks
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import evidence, who
from allready.judging.signs import Sign
from allready.model import Confidence, Event, FaultClass, Hit, Recorder, Role, RunEvidence, Severity, clock_time
from allready.signatures.watchdog import TIMEOUTS

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
