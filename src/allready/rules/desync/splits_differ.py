from collections.abc import Iterator

from allready.judging.mismatch import evidence_of, first_mismatches, hit_of, source_of
from allready.judging.registry import Layer, Rule
from allready.judging.run_signs import who
from allready.judging.stated import stated
from allready.model import Confidence, Culprits, Evidence, FaultClass, Hit, Mismatch, RunEvidence, Severity


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
