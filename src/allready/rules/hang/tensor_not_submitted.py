from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.hang import HangKind
from allready.judging.horovod import stall
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import evidence, who
from allready.judging.signs import Sign
from allready.model import Confidence, Culprits, FaultClass, Hit, RemedyStep, RunEvidence, Severity, clock_time


@Rule(
    code="HNG013",
    severity=Severity.ERROR,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.SILENCE,
    applies=Applies.OFFLINE,
    unless=(Sign.PROCESS_END, Sign.OTHER_CALLS),
    title="Horovod waited to the end for ranks that did not submit a tensor",
    message="{missing} had not submitted {tensor}{more} to Horovod, and the other ranks waited for {missing:it/them} "
    "to the end",
    remedy=(
        RemedyStep(
            explanation="look at what {who} did then: ended, loading data, saving, evaluating, or on another branch "
            "of the program. HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=600 makes Horovod end such a job"
        ),
        RemedyStep(shared="stack"),
    ),
)
def tensor_not_submitted(case: Analysis, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    The last report of Horovod's stall inspector (`Missing ranks:`, `Stalled ranks:`, `[missing ranks: ...]`, and
    `[ready ranks: ...]` of old releases), where nothing shows that the job made progress behind it, or where Horovod
    ended the job because of it (`!` behind the number of a rank).
    ## Why it matters
    All ranks wait for the rank that is named, and only rank 0 logs it.
    ## Check by hand
    The log of the named rank; `py-spy dump --pid PID` while it is stalled.
    ## When it is harmless
    When the rank was only late and the log was cut off before the job went on.
    """
    found = case.of(stall)
    if found is None or found.kind == HangKind.APART:
        return
    is_extra = found.kind == "extra"
    confidence = Confidence.LIKELY if (found.stopped or found.num_reports > 1) and not is_extra else Confidence.POSSIBLE
    first = found.events[0]
    yield Hit(
        culprits=Culprits(ranks=found.ranks),
        values={
            "missing": who(run, found.missing),
            "who": who(run, found.ranks),
            "tensor": found.tensor,
            "more": f" (+{found.num_tensors - 1})" if found.num_tensors > 1 else "",
        },
        fault_class=FaultClass.DESYNC_FLOW if is_extra else None,
        confidence=confidence,
        evidence=tuple(evidence(e.origin, e.text, e.time_s) for e in found.events[:4]),
        fault_time=clock_time(first.time_s),
    )
