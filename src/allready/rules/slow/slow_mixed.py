from collections.abc import Iterator

from msgspec.structs import replace

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.model import Confidence, Culprits, FaultClass, Hit, Live, RemedyStep, Severity
from allready.rules.slow._blame import blame, rank_hit
from allready.rules.slow._traffic import flow_evidence


@Rule(
    code="SLW009",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_MIXED,
    layer=Layer.PACE,
    explains=("SLW002", "SLW003", "SLW004", "SLW005", "SLW006", "SLW007", "SLW008", "SLW013"),
    title="A slow rank and a slow link at the same time",
    message="two faults slow the job: the others wait for {who} {share} of the time, and the network of {where} "
    "carries only {rate} Mbit/s",
    remedy=RemedyStep(
        explanation="fix both, as the findings SLW002 to SLW008 describe; after one of them the job is still slow"
    ),
)
def slow_mixed(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Whether one rank is late because it computes longer, and at the same time a link is slower than the others.
    ## Why it matters
    Each hides the other: when one is fixed, the job hardly gets faster.
    ## Check by hand
    As in the findings of the two.
    ## When it is harmless
    Never for both; see there.
    """
    found = case.of(blame)
    path = found.path or found.lossy
    if not found.ranks or path is None or not path.is_sure:
        return
    rate = f"{min(f.rate_bit_per_s for f in path.flows) / 1e6:.3g}"
    hit = rank_hit(case, found.ranks, Confidence.LIKELY, where=path.where(live), rate=rate)
    yield replace(
        hit,
        culprits=Culprits(nodes=path.nodes, ranks=hit.culprits.ranks, links=path.links),
        evidence=(*hit.evidence, *flow_evidence(path.flows[:4])),
    )
