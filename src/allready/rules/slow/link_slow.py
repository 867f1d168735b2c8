"""SLW007."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.link_paths import arrows, names
from allready.judging.registry import Rule
from allready.model import Confidence, Culprits, FaultClass, Hit, Live, Severity
from allready.rules.slow._decide import decide
from allready.rules.slow._traffic import SURE_S, is_crowded, told

FAR_SLOWER = 4.0
"""So many times slower than the others a path must be where the processors of its nodes are overloaded."""


@Rule(
    code="SLW007",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMM,
    since="0.1",
    layer=Layer.PACE,
    title="The network of one node is slower than the others', and all ranks wait for it",
    message="{where} is slower than the others: data {paths} is acknowledged at {rate} Mbit/s, elsewhere at {others} "
    "Mbit/s, and takes {rtt} ms there; the job waits for it during {cost} of the time",
    remedy="look at that link: negotiated speed (`ethtool IFNAME | grep Speed`), a rate limit (`tc -s qdisc show`), "
    "errors (`ip -s link`), other traffic on it (`sar -n DEV 1`), and the switch port; `allready check` measures all "
    "paths",
)
def link_slow(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    The kernel's counters of the ranks' TCP connections over a few seconds: for how much of the time each has data under
    way, how fast it is acknowledged, and how long packets take.  On one path data is always under way and takes long,
    while the senders on all other paths are mostly idle.
    ## Why it matters
    A ring moves at the pace of its slowest link.  The ranks enter every operation together and look alike from inside.
    ## Check by hand
    `ss -tin` on the nodes, twice: `busy:` grows all the time on the slow path only; `delivery_rate`, `rtt`.
    ## When it is harmless
    While something else uses the link for a moment, for example a checkpoint that is copied away.  On nodes whose
    processors are overloaded it is a warning, unless the path is four times slower than the others.
    """
    path = case.of(decide).path
    if path is None or min(f.seconds for f in path.flows) < SURE_S:
        return
    is_clear = path.others_mbit_per_s >= FAR_SLOWER * path.mbit_per_s
    yield Hit(
        severity=Severity.WARNING if is_crowded(live, path.flows) and not is_clear else None,
        culprits=Culprits(nodes=path.nodes, links=path.links),
        values={
            "where": names(live, path.nodes) if path.nodes else arrows(path.links),
            "paths": arrows((f.src, f.dst) for f in path.flows),
            "rate": f"{path.mbit_per_s:.3g}",
            "others": f"{path.others_mbit_per_s:.3g}",
            "cost": f"{path.cost:.0%}",
            "rtt": f"{max(f.rtt_s for f in path.flows) * 1000:.1f}",
        },
        confidence=Confidence.CERTAIN if len(path.flows) > 1 or not path.nodes else Confidence.LIKELY,
        evidence=(*told(path.flows[:6]), *told(path.others[:4])),
    )
