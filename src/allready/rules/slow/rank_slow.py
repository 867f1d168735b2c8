from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.model import HOSTS, PROCESSES, Confidence, FaultClass, Hit, Live, RemedyStep, Severity
from allready.rules.slow._blame import blame, rank_hit, ranks_of
from allready.rules.slow._pace import usual_site


@Rule(
    code="SLW006",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMP,
    layer=Layer.PACE,
    title="One rank has a consistently longer compute time per iteration",
    message="{who} {who:computes/compute} longer than the others[[ ({site})]]; they wait for {who:it/them} {share} "
    "of the time, by {late} ms at the median; no cause outside of the process was found",
    remedy=(
        RemedyStep(
            explanation="profile it against another rank: its share of the work, its loader",
            each=PROCESSES,
            where="{on}",
            command="py-spy record -d 30 -o rank.svg --pid {pid}",
        ),
        RemedyStep(
            explanation="check neighbours on its CPUs and the clocks of its GPU",
            each=HOSTS,
            where="{on}",
            command="top -b -n 1 | head -20; nvidia-smi -q -d CLOCK,PERFORMANCE",
        ),
    ),
)
def rank_slow(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    When each rank entered each operation, on synchronized clocks: for how much of the time most ranks had entered and
    one had not, steadily, without its longest waits, and against how often each rank would be last by chance.
    ## Why it matters
    Collectives run at the pace of the slowest rank; every other rank looks busy in communication and only waits.
    ## Check by hand
    Compare creation times of the same operation in all ranks' flight records.
    ## When it is harmless
    When the rank has more work by design. Up to a fifth of the time it is reported as information only.
    """
    slow = case.of(blame).because("")
    if slow:
        confidence = Confidence.CERTAIN if slow[0].computes_longer else Confidence.LIKELY
        yield rank_hit(case, slow, confidence, site=usual_site(live, ranks_of(slow)))
