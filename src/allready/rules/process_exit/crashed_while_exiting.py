from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.causes import first_causes, hit_of, left_before_others
from allready.judging.registry import Layer, Rule
from allready.model import Confidence, FaultClass, Hit, RunEvidence, Severity


@Rule(
    code="DTH007",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DESYNC_FLOW,
    layer=Layer.PROCESS_END,
    title="A rank finished its script before the others and crashed while its process exited",
    message="{who} finished {who:its/their} script while others still called collectives; {who:its/their} process "
    "then crashed[[ with {signal}]] while it exited, which is a consequence",
    remedy="find why this rank left earlier: sys.exit() or return under a condition that is not the same on all ranks, "
    "fewer batches (drop_last=True, DistributedSampler, DDP's join()), another number of steps. Call "
    "torch.distributed.destroy_process_group() on every way out of the script: then its process does not crash",
)
def crashed_while_exiting(case: Analysis, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks that ended by a crash signal after CUDA reported `driver shutting down` to one of their threads: their script
    had ended without an exception, and collectives of the group were still pending.  Reported where the rank had made
    fewer calls than others, or where nothing counts the calls (then only as possible).
    ## Why it matters
    The launcher reports SIGSEGV or SIGABRT, which looks like a fault of native code.  The fault is the early exit: the
    others wait for this rank.
    ## Check by hand
    The output of this rank: no traceback stands before the first `driver shutting down`.
    ## When it is harmless
    Never: the others cannot go on.
    """
    deaths = first_causes(case, {"signal", "abort"})
    behind = {left_before_others(d, run) for d in deaths}
    if not deaths or False in behind:
        return
    yield hit_of(
        deaths,
        run,
        values={"signal": deaths[0].signal or None},
        confidence=Confidence.POSSIBLE if None in behind else Confidence.LIKELY,
    )
