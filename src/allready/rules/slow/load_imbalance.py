"""SLW012."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.live_status import named
from allready.judging.registry import Rule
from allready.model import Confidence, Culprits, FaultClass, Hit, Live, Severity, World
from allready.rules.slow._decide import decide
from allready.rules.slow._pace import percent, told


@Rule(
    code="SLW012",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_NOCULPRIT,
    since="0.1",
    layer=Layer.PACE,
    title="One rank has a little more work than the others",
    message="the others wait for {who} during {share} of the time: it has more to do in each turn, which is not a "
    "fault",
    remedy="if this time matters, move work away from {who}: logging, checkpoints, evaluation, a larger share of the "
    "data",
)
def load_imbalance(case: Analysis, live: Live, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether the others wait for one rank steadily, for less than a fifth of the time, or while that rank is seen saving,
    evaluating or compiling.
    ## Why it matters
    It is what a rank that logs or saves costs; nothing is broken.
    ## Check by hand
    Profile that rank against another one.
    ## When it is harmless
    Always; it is a remark for who wants the last tenth of speed.
    """
    slow = case.of(decide).heavier
    if not slow:
        return
    yield Hit(
        culprits=Culprits(),
        values={"who": named(live, world, [s.rank for s in slow]), "share": percent(slow[0].share)},
        confidence=Confidence.LIKELY,
        evidence=told(slow),
    )
