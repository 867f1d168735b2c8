from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.horovod import stall
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import evidence, who
from allready.judging.signs import Sign
from allready.model import Confidence, Culprits, FaultClass, Hit, RunEvidence, Severity, clock_time


@Rule(
    code="DSY005",
    severity=Severity.ERROR,
    fault_class=FaultClass.DESYNC_FLOW,
    layer=Layer.DESYNC,
    applies=Applies.OFFLINE,
    unless=(Sign.PROCESS_END, Sign.OTHER_CALLS),
    title="Ranks submitted different tensors to Horovod",
    message="{who} submitted {tensor} to Horovod where other ranks submitted {other}; each waited for the other to the "
    "end",
    remedy="look for the branch on which {tensor} is reduced and {other} is not: an operation on rank 0 only, unused "
    "parameters, other names of layers (two models in one process), another number of batches, or a rank that "
    "restored another checkpoint",
)
def other_tensors(case: Analysis, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    The last report of Horovod's stall inspector: ranks that have submitted one tensor and not another one, where the
    others did it the other way round.
    ## Why it matters
    Horovod matches tensors by their names.  A rank that submits others waits for ever, and so do all other ranks.
    ## Check by hand
    Compare the lists of tensors behind the numbers of the ranks.
    ## When it is harmless
    When the log was cut off before the slower rank came to the same tensor.
    """
    found = case.of(stall)
    if found is None or found.kind != "apart":
        return
    yield Hit(
        culprits=Culprits(ranks=found.ranks),
        values={"who": who(run, found.ranks), "tensor": found.tensor, "other": found.other},
        confidence=Confidence.LIKELY if found.stopped or found.num_reports > 1 else Confidence.POSSIBLE,
        evidence=tuple(evidence(e.origin, e.text, e.time_s) for e in found.events[:4]),
        fault_time=clock_time(found.events[0].time_s),
    )
