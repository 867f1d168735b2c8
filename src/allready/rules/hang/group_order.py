from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.hang import HangKind, blame_hang
from allready.judging.registry import Layer, Rule
from allready.judging.run_signs import onset, who
from allready.judging.waits import positions
from allready.model import Confidence, Culprits, FaultClass, Hit, RunEvidence, Severity, clock_time
from allready.rules.hang._circle import circle_of, sites_of, wait_label


@Rule(
    code="HNG010",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DESYNC_FLOW,
    layer=Layer.STALL,
    title="A rank uses its groups in another order than the others",
    message="{who} left the order in which all use their groups: {who:it waits/they wait} in {its}, {others} in "
    "[[{theirs}|other groups]], each for the other",
    remedy="put the calls of the groups in the same order on {who} as on the others, or finish one group's operation "
    "before the next begins",
)
def group_order(case: Analysis, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks that wait for each other in several groups: who left the order of calls, over all of its groups, that its loop
    had until then, while the others, half of all at least, kept to it, or fewer where one that left it waits only for
    others that did, so that they hardly took a new order together; or, of the ranks that meet in all of these
    groups, the few that wait in another one than most, or the only one who could let others go on.  A send or receive
    that was left out counts as well: Gloo records none, but counts them.
    ## Why it matters
    Every single call is right, and no timeout names a rank: each side is waiting in an operation that the other side
    has not come to.
    ## Check by hand
    Write down for each rank in which group it waits, and compare the order of calls in its code.
    ## When it is harmless
    Never.  Where as many ranks wait on one side as on the other none is the odd one: see HNG004.
    """
    yield from _left_a_send_out(case, run)
    found = circle_of(case)
    if found is None or not found.odd:
        return
    waits = found.snapshot.waits
    yield Hit(
        culprits=Culprits(ranks=found.odd),
        values={
            "who": who(run, found.odd),
            "its": ", ".join(sorted({found.label(w) for w in waits if set(w.waiting) & set(found.odd)})),
            "others": who(run, found.others, with_processes=False),
            "theirs": ", ".join(sorted({found.label(w) for w in waits if set(w.waiting) & set(found.others)})),
        },
        confidence=Confidence.LIKELY if found.blame.is_final or case.live is not None else Confidence.POSSIBLE,
        evidence=positions(found.snapshot, (*found.odd, *found.others)),
        fault_time=clock_time(found.blame.began_s or onset(run)),
    )


def _left_a_send_out(case: Analysis, run: RunEvidence) -> Iterator[Hit]:
    """Or a receive: those that it left out of its loop stand in the other half, which no group's record shows."""
    found = case.of(blame_hang)
    if found.kind is not HangKind.TURN or found.snapshot is None or found.wait is None:
        return
    sites = sites_of(case)
    theirs = sorted({str(site) for c in found.causes if (site := sites.get(c.rank) or c.site) is not None})
    its = next((sites[r] for r in found.ranks if r in sites and not found.wait.operation.site), None)
    yield Hit(
        culprits=Culprits(ranks=found.ranks),
        values={
            "who": who(run, found.ranks),
            "its": wait_label(found.wait) + (f" ({its})" if its else ""),
            "others": who(run, found.waiting, with_processes=False),
            "theirs": ", ".join(theirs) or None,
        },
        confidence=Confidence.LIKELY,
        evidence=(
            *positions(found.snapshot, (*found.ranks, *found.waiting)),
            *(e for c in found.causes for e in c.evidence),
        ),
        fault_time=clock_time(found.began_s or onset(run)),
    )
