from collections.abc import Iterator, Sequence

from allready.judging.mismatch import UNMET, calls_text, evidence_of
from allready.judging.registry import Layer, Rule
from allready.judging.run_signs import who
from allready.judging.signs import Sign
from allready.model import Confidence, Culprits, FaultClass, Hit, Live, Mismatch, RunEvidence, Severity


@Rule(
    code="DSY006",
    severity=Severity.ERROR,
    fault_class=FaultClass.DESYNC_FLOW,
    layer=Layer.SILENCE,
    unless=(Sign.PROCESS_END,),
    title="A send or a receive that its peer never posted",
    message="{who} posted {half} (number {seq} of this pair[[ in group {group}]]), and {absent} never posted "
    "the other half",
    remedy="look at what {absent} did then. Two ranks that both receive first, or both send first, wait for ever: let "
    "one of them begin with the other half, or give both to batch_isend_irecv",
)
def unmet_half(run: RunEvidence, live: Live | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    Sends and receives in NCCL's own log of operations, matched by pair of ranks: the first one without its other half.
    Where two ranks wait for each other that way, both are shown and no rank is accused.  Of a running job only that is
    reported: a half that stands alone may get the other one yet.
    ## Why it matters
    A receive waits for its send, a large send for its receive; the pipeline is stalled behind it.
    ## Check by hand
    Count `Send:` and `Recv:` lines (NCCL_DEBUG_SUBSYS=COLL) of each pair of ranks.
    ## When it is harmless
    When the logs were copied from a job in motion, or end where it was stopped: the last halves always stand alone.
    """
    unmet = [m for m in run.mismatches if m.kind == UNMET and m.missing]
    circle = _circle(unmet)
    if live is not None and not circle:
        return
    for mismatch in circle or unmet[:1]:
        rank = next(iter(mismatch.by_rank))
        yield Hit(
            culprits=Culprits(ranks=() if circle else mismatch.missing),
            values={
                "who": who(run, (rank,)),
                "half": calls_text(mismatch.by_rank, (rank,)),
                "seq": mismatch.seq,
                "group": mismatch.label or mismatch.group,
                "absent": who(run, mismatch.missing),
            },
            confidence=Confidence.LIKELY if circle else Confidence.POSSIBLE,
            evidence=tuple(e for m in circle or (mismatch,) for e in evidence_of(m)),
        )
        return


def _circle(unmet: Sequence[Mismatch]) -> tuple[Mismatch, ...]:
    """Two ranks, each of which waits for the other's half; the same half of both."""
    by_pair = {(next(iter(m.by_rank)), m.missing[0]): m for m in unmet}
    for (rank, peer), one in by_pair.items():
        other = by_pair.get((peer, rank))
        if other is not None and one.by_rank[rank].name == other.by_rank[peer].name:
            return one, other
    return ()
