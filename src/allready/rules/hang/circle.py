from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.run_signs import onset, who
from allready.judging.waits import positions
from allready.model import Confidence, Culprits, FaultClass, Hit, RunEvidence, Severity, clock_time
from allready.rules.hang._circle import circle_of

BOTH = 2
"""Sides of which each may be the wrong one.  Of three and more most are right, and the calls do not tell which."""


@Rule(
    code="HNG004",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DESYNC_FLOW,
    layer=Layer.STALL,
    title="Ranks wait for each other in a circle of groups",
    message="{who} wait for each other[[ in {sides} different operations, and no order of calls has a majority]]: "
    "{chain}",
    remedy="ranks must use their groups in one order: put the calls in the same order on every rank, or finish one "
    "group's operation before the next begins",
)
def circle(case: Analysis, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    The graph of waits over all groups: everyone who is waited for waits in another group itself.
    ## Why it matters
    Two groups used in opposite order on two ranks lock each other for ever, though every single call is right.  Where
    as many took the one order as the other, no rank is the odd one: both orders are shown, and all ranks in it named.
    Of three and more orders (three ranks in three pairs, at first use) all are shown, and no rank is accused.
    ## Check by hand
    Compare the calls that the message shows, one for each side: which of the two comes first in your program?
    ## When it is harmless
    Never.
    """
    found = circle_of(case)
    if found is None or found.odd:
        return
    yield Hit(
        culprits=Culprits(ranks=found.ranks if found.num_sides <= BOTH else ()),
        values={
            "who": who(run, found.ranks),
            "sides": found.num_sides if found.num_sides > BOTH else None,
            "chain": found.sides(run),
        },
        confidence=Confidence.LIKELY if found.blame.is_final or case.live is not None else Confidence.POSSIBLE,
        evidence=positions(found.snapshot, found.ranks),
        fault_time=clock_time(found.blame.began_s or onset(run)),
    )
