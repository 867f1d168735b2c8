"""DSY001."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.mismatch import alike, evidence_of, first_mismatches, told
from allready.judging.registry import Rule
from allready.judging.run_signs import who
from allready.model import Confidence, Culprits, FaultClass, Hit, RunEvidence, Severity, clock_time


@Rule(
    code="DSY001",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DESYNC_FLOW,
    since="0.1",
    layer=Layer.DESYNC,
    explains=("CUD019",),
    title="A rank made another collective call than the others",
    message="operation {seq} of group {group}: {who} called {odd}, the others {usual}",
    remedy="every rank must make the same calls in the same order: look for a branch on rank or data before {site} "
    "(if rank == 0, an early return, a caught exception, a batch more or less). TORCH_DISTRIBUTED_DEBUG=DETAIL makes "
    "torch check every call",
)
def other_call(run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    The k-th operation of every group, rank by rank, from flight-recorder dumps or from NCCL's COLL lines: the first
    one at which ranks called different operations, or at which one rank's calls are shifted by one it made more or
    less.
    ## Why it matters
    Collectives match by order, not by name.  A rank that makes one call more receives data meant for another call: a
    hang, a truncated message, or silently wrong numbers.
    ## Check by hand
    Compare the call sites of the operation in the dumps; count COLL lines per rank and iteration.
    ## When it is harmless
    Never; on two ranks nobody can say which of them is wrong, so nobody is accused.
    """
    for mismatch in first_mismatches(run, flow=True)[:4]:
        odd = mismatch.odd or alike(mismatch.by_rank)
        usual = tuple(r for r in mismatch.by_rank if r not in odd)
        sites = [mismatch.by_rank[r].site for r in odd if mismatch.by_rank.get(r) and mismatch.by_rank[r].site]
        yield Hit(
            culprits=Culprits(ranks=mismatch.odd),
            values={
                "seq": mismatch.seq,
                "group": mismatch.label or mismatch.group,
                "who": who(run, odd),
                "odd": told(mismatch.by_rank, odd),
                "usual": told(mismatch.by_rank, usual),
                "site": sites[0] if sites else f"#{mismatch.seq}",
            },
            confidence=Confidence.CERTAIN
            if mismatch.odd and mismatch.source == "flight recorder"
            else Confidence.LIKELY,
            evidence=evidence_of(mismatch),
            fault_time=clock_time(
                min((o.created_s for o in mismatch.by_rank.values() if o.created_s is not None), default=None)
            ),
        )
