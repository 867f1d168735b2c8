from collections.abc import Iterator

from allready.judging.causes import follows_order, hit_of
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import WAITED
from allready.judging.signs import Sign
from allready.model import Confidence, Culprits, FaultClass, Hit, RunEvidence, Severity


@Rule(
    code="RES012",
    severity=Severity.ERROR,
    fault_class=FaultClass.DEAD,
    layer=Layer.FALLBACK,
    applies=Applies.OFFLINE,
    unless=(Sign.PROCESS_END, Sign.ROOT_LINE, Sign.POSITIONS, Sign.OTHER_CALLS, Sign.ALL_WELL),
    title="A process ended with an error of its communication library; the cause is not in this input",
    message="{who} ended in a call of its communication library: {error}; the first error is not in these files",
    remedy="another rank, or another line of this one, has the first error: give diagnose the output of all ranks. "
    "NCCL_DEBUG=WARN (on NPUs the logs below $HOME/ascend/log) tells what the library itself saw",
)
def library_only(run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Exceptions in which NCCL, HCCL, Gloo or the store of torch.distributed reports that a call failed, where no line of
    any file says more: no rank that ended before, no warning, no wait that timed out.
    ## Why it matters
    Such an exception mostly follows from what happened to another rank.
    ## Check by hand
    `grep -n -m 3 -iE "error|warn|traceback" LOG` in the output of every rank: the earliest one counts.
    ## When it is harmless
    When the job was ended on purpose, or the program caught the exception and went on.
    """
    deaths = [
        d
        for d in run.deaths
        if d.kind == "exception" and d.is_collective_error and not (d.earlier or d.by_launcher or follows_order(d, run))
    ]
    if not deaths or any(e.signature in WAITED for e in run.events):
        return
    yield hit_of(deaths, run, culprits=Culprits(), values={"error": deaths[0].text}, confidence=Confidence.POSSIBLE)
