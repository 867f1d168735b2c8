from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.hang import HangKind
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import who
from allready.judging.signs import Sign
from allready.judging.stated import stated
from allready.judging.wait_words import call_of
from allready.model import Confidence, Culprits, FaultClass, Hit, Severity, clock_time
from allready.rules.hang._hits import blamed, hit_of


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
