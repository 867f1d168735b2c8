"""SLW006."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import Confidence, FaultClass, Hit, Live, Severity, World
from allready.rules.slow._decide import decide
from allready.rules.slow._pace import usual_site
from allready.rules.slow._say import ranks_of, waited_for


@Rule(
    code="SLW006",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMP,
    since="0.1",
    layer=Layer.PACE,
    title="One rank computes longer than the others in every turn",
    message="the others wait for {who} during {share} of the time, by {late} ms at the median: it computes longer "
    "({site}); nothing is seen that stops it from outside",
    remedy="profile {who} against another rank (`py-spy record --pid PID`): its share of the work, its loader, "
    "neighbours on its CPUs (`top`), its GPU's clocks (`nvidia-smi -q -d CLOCK,PERFORMANCE`)",
)
def rank_slow(case: Analysis, live: Live, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    When each rank entered each operation, on clocks that were compared: for how much of the time most ranks had
    entered and one had not, steadily, without its longest waits, and against how often each rank would be last by
    chance.
    ## Why it matters
    Collectives go at the pace of the slowest; every other rank looks busy in communication and is only waiting.
    ## Check by hand
    Compare creation times of the same operation in all ranks' flight records.
    ## When it is harmless
    When the rank has more work by design. Up to a fifth of the time it is told as a remark only.
    """
    slow = case.of(decide).because("")
    if not slow:
        return
    yield waited_for(
        live,
        world,
        slow,
        confidence=Confidence.CERTAIN if slow[0].computes_longer else Confidence.LIKELY,
        site=usual_site(live, ranks_of(slow)[0]) or "?",
    )
