from collections.abc import Iterator

from allready.judging.majority import is_majority
from allready.judging.mismatch import alike, first_mismatches, hit_of
from allready.judging.registry import Layer, Rule
from allready.model import Confidence, FaultClass, Hit, Live, Recorder, RunEvidence, Severity


@Rule(
    code="DSY001",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DESYNC_FLOW,
    layer=Layer.DESYNC,
    explains=("CUD019",),
    title="One rank called another collective than the others",
    message="{who} called [[{odd}|another operation]] as operation {seq} of group {group}[[, iteration "
    "{iteration}]][[, the others called {usual}]][[, {rest} called {of_rest}]]",
    remedy="every rank must make the same calls in the same order: look for a branch on rank or data before {site} "
    "(if rank == 0, an early return, a caught exception, a batch more or less). TORCH_DISTRIBUTED_DEBUG=DETAIL makes "
    "torch check every call",
)
def other_call(run: RunEvidence, live: Live | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    The k-th operation of every group, rank by rank, from flight-recorder dumps or from NCCL's COLL lines: the first
    one at which ranks called different operations, or at which one rank's calls are shifted by one it made more or
    less.
    ## Why it matters
    Collectives match by their position, not by name.  A rank that makes one call more receives data meant for
    another call: a hang, a truncated message, or silently wrong numbers.
    ## Check by hand
    Compare the call sites of the operation in the dumps; count COLL lines per rank and iteration.
    ## When it is harmless
    Never.  Where no majority agrees, ranks are accused only on a tie: half of all members made one call, half another
    (one of two ranks, two of four), and one half broke the loop that all had made until then, with another call of that
    loop; or, before there is a loop, made another call than the groups of the same kind beside its own, and one that
    these know.  Where the calls are of three kinds, or one of some member is not known, no rank is accused.
    """
    for mismatch in first_mismatches(run, live, flow=True)[:4]:
        sites = [o.site for r in mismatch.odd or alike(mismatch.by_rank) if (o := mismatch.by_rank.get(r)) and o.site]
        ranks = {*mismatch.by_rank, *mismatch.missing}
        is_voted = is_majority(len(mismatch.by_rank) - len(mismatch.odd), len(ranks))
        is_sure = mismatch.odd and mismatch.source == Recorder.FLIGHT and is_voted and not mismatch.is_by_digest
        yield hit_of(
            run,
            mismatch,
            values={
                "site": sites[0] if sites else f"#{mismatch.seq}",
                "iteration": "?" if mismatch.iteration is None else mismatch.iteration,
            },
            confidence=Confidence.CERTAIN if is_sure else Confidence.LIKELY,
        )
