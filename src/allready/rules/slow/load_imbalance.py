from collections.abc import Iterator

from msgspec.structs import replace

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.model import Confidence, Culprits, FaultClass, Hit, Live, RemedyStep, Severity
from allready.rules.slow._blame import blame, rank_hit


@Rule(
    code="SLW012",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_NOCULPRIT,
    layer=Layer.PACE,
    title="One rank has slightly more work than the others (load imbalance)",
    message="{who} {who:has/have} more work per step; the others wait for {who:it/them} {share} of the time, which is "
    "no fault",
    remedy=RemedyStep(
        explanation="if this time matters, move work away from {who}: logging, checkpoints, evaluation, a larger share "
        "of the data"
    ),
)
def load_imbalance(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Whether the others wait for one rank steadily, for less than a fifth of the time, or while that rank saves,
    evaluates or compiles.
    ## Why it matters
    It is the cost of a rank that logs or saves; nothing is broken.
    ## Check by hand
    Profile that rank against another one.
    ## When it is harmless
    Always; it is a hint for the last tenth of speed.
    """
    slow = case.of(blame).heavier
    if slow:
        yield replace(rank_hit(case, slow, Confidence.LIKELY), culprits=Culprits())
