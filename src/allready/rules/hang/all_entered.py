from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.hang import HangKind
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import who
from allready.judging.signs import Sign
from allready.judging.stated import stated
from allready.judging.wait_words import call_of
from allready.model import Confidence, FaultClass, Hit, Live, RemedyStep, Severity
from allready.rules.hang._hits import blamed, hit_of


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
