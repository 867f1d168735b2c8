"""SLW009."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.link_paths import arrows, names
from allready.judging.live_status import named
from allready.judging.registry import Rule
from allready.model import Confidence, Culprits, FaultClass, Hit, Live, Severity, World
from allready.rules.slow._decide import decide
from allready.rules.slow._pace import percent
from allready.rules.slow._pace import told as told_paces
from allready.rules.slow._traffic import SURE_S
from allready.rules.slow._traffic import told as told_paths


@Rule(
    code="SLW009",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_MIXED,
    since="0.1",
    layer=Layer.PACE,
    explains=("SLW002", "SLW003", "SLW004", "SLW005", "SLW006", "SLW007", "SLW008", "SLW013"),
    title="A slow rank and a slow link at the same time",
    message="two things slow the job: the others wait for {who} during {share} of the time, and the network of {where} "
    "carries {rate} Mbit/s",
    remedy="mend both, the findings SLW002 to SLW008 say how; after one of them the job is still slow",
)
def slow_mixed(case: Analysis, live: Live, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether one rank is waited for because it computes longer, and at the same time a link is slower than the others.
    ## Why it matters
    Each hides the other: when one is mended, the job hardly gets faster.
    ## Check by hand
    As in the findings of the two.
    ## When it is harmless
    Never for both; see there.
    """
    found = case.of(decide)
    path = found.path or found.lossy
    if not found.ranks or path is None or min(f.seconds for f in path.flows) < SURE_S:
        return
    ranks = tuple(sorted(s.rank for s in found.ranks))
    rates = [f.rate_bit_per_s / 1e6 for f in path.flows]
    yield Hit(
        culprits=Culprits(nodes=path.nodes, ranks=ranks, links=path.links),
        values={
            "who": named(live, world, ranks),
            "share": percent(found.ranks[0].share),
            "where": names(live, path.nodes) if path.nodes else arrows(path.links),
            "rate": f"{min(rates):.3g}",
        },
        confidence=Confidence.LIKELY,
        evidence=(*told_paces(found.ranks), *told_paths(path.flows[:4])),
    )
