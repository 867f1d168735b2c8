from collections.abc import Iterator

from allready.judging.mismatch import first_mismatches, hit_of
from allready.judging.registry import Layer, Rule
from allready.model import Confidence, FaultClass, Hit, Live, RunEvidence, Severity
from allready.model.fill import UNKNOWN


@Rule(
    code="DSY002",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DESYNC_ARGS,
    layer=Layer.DESYNC,
    title="A rank called the same collective with another size, type or root",
    message="{who} called [[{odd}|another operation]] as operation {seq} of group {group}[[, iteration "
    "{iteration}]][[, the others called {usual}]][[, {rest} called {of_rest}]]: {kind} differs",
    remedy="make {kind} equal on all ranks at that call (uneven last batch, a parameter that exists on some ranks "
    "only, mixed precision on some ranks only; src and dst are ranks of the job, also in a smaller group). "
    "Results of this and later operations are not to be trusted, even if "
    "the job ended with 0",
)
def other_arguments(run: RunEvidence, live: Live | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    The k-th operation of every group, rank by rank: same operation, but another number of elements, data type,
    reduction or root.
    ## Why it matters
    NCCL does not check it: the job may hang, may say "message truncated", or may go on with wrong numbers and end with
    exit code 0.
    ## Check by hand
    Print shapes and dtypes on every rank before the call, or run once with TORCH_DISTRIBUTED_DEBUG=DETAIL.
    ## When it is harmless
    all_to_all with uneven splits, and send/recv, are matched pairwise and not reported here. Roots are known where
    `allready run` started the ranks, and from NCCL's own log of operations; the flight recorder does not have them.
    """
    for mismatch in first_mismatches(run, live, flow=False)[:4]:
        if mismatch.misfits:
            continue  # DSY004
        yield hit_of(
            run,
            mismatch,
            values={"iteration": UNKNOWN if mismatch.iteration is None else mismatch.iteration, "kind": mismatch.kind},
            confidence=Confidence.CERTAIN if mismatch.odd and not mismatch.is_by_digest else Confidence.LIKELY,
        )
