"""Ranks whose calls under one number differ."""

from collections.abc import Iterator, Sequence

from allready.judging.analysis import Analysis
from allready.judging.horovod import stall
from allready.judging.majority import is_majority
from allready.judging.mismatch import UNMET, alike, calls_text, evidence_of, first_mismatches, hit_of, source_of
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import evidence, who
from allready.judging.signs import Sign
from allready.judging.stated import stated
from allready.model import (
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    Hit,
    Live,
    Mismatch,
    Recorder,
    RunEvidence,
    Severity,
    clock_time,
)


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
            values={"site": sites[0] if sites else f"#{mismatch.seq}", "iteration": mismatch.iteration},
            confidence=Confidence.CERTAIN if is_sure else Confidence.LIKELY,
        )


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
            values={"iteration": mismatch.iteration, "kind": mismatch.kind},
            confidence=Confidence.CERTAIN if mismatch.odd and not mismatch.is_by_digest else Confidence.LIKELY,
        )


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


@Rule(
    code="DSY004",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DESYNC_ARGS,
    layer=Layer.DESYNC,
    title="The splits of an all_to_all do not match",
    message="{who} {who:is/are} part of every mismatch in operation {seq} of group {group} ({num_misfits} seen): "
    "{sender} sends {num_sent} elements to rank {receiver}, which expects {num_expected}",
    remedy="exchange the sizes first (an all_to_all of the counts) and give them as output_split_sizes, instead of "
    "reckoning them on each rank; at this call look at what {who} gave as input_split_sizes and output_split_sizes",
)
def splits_differ(run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    For every pair of ranks in an all_to_all: what the one sends the other against what that one expects of it.
    ## Why it matters
    No backend compares them: Gloo ends with a size that does not fit or waits for ever, NCCL hangs or goes on with
    numbers that belong somewhere else.
    ## Check by hand
    Print input_split_sizes and output_split_sizes on every rank before the call: row x of the one must be column x of
    the other.
    ## When it is harmless
    Never. Splits that are uneven and match are not reported.
    """
    for mismatch in first_mismatches(run, flow=False)[:4]:
        if not mismatch.misfits:
            continue
        first = mismatch.misfits[0]
        pair = tuple(sorted({first.sender, first.receiver}))
        is_told = bool(mismatch.odd) or not mismatch.missing  # else another pair may tell which of the two it is
        culprits = mismatch.odd or pair
        yield hit_of(
            run,
            mismatch,
            culprits=Culprits(ranks=culprits if is_told else ()),
            values={
                "sender": who(run, (first.sender,)),
                "receiver": first.receiver,
                "num_sent": first.num_sent,
                "num_expected": first.num_expected,
                "who": who(run, culprits),
                "num_misfits": len(mismatch.misfits),
            },
            confidence=Confidence.CERTAIN if mismatch.odd else Confidence.LIKELY,
            evidence=(*_shown(mismatch), *evidence_of(mismatch)),
        )


def _shown(mismatch: Mismatch) -> Iterator[Evidence]:
    """A line for each pair that does not fit."""
    for misfit in mismatch.misfits[:6]:
        yield stated(
            source_of(mismatch, misfit.sender),
            "rank {sender} sends {sent} elements to rank {receiver}, rank {receiver} expects {expected}",
            sender=misfit.sender,
            receiver=misfit.receiver,
            sent=misfit.num_sent,
            expected=misfit.num_expected,
        )


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
