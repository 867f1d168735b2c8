"""SLW008."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.link_paths import arrows, names
from allready.judging.registry import Rule
from allready.model import Confidence, Culprits, FaultClass, Hit, Live, Severity
from allready.rules.slow._decide import WORST_LOSS, decide
from allready.rules.slow._traffic import LOST_TIME, SURE_S, is_crowded, told

SURE_LOSS = 0.03


@Rule(
    code="SLW008",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMM,
    since="0.1",
    layer=Layer.PACE,
    title="Packets get lost on the way to or from one node",
    message="{loss} of the segments to and from {where} are sent again ({num}), {others} on the other paths: packets "
    "get lost there, and each loss makes all ranks wait",
    remedy="look for a bad cable or port: `ip -s link` and `ethtool -S IFNAME | grep -i -E 'err|drop|crc'` on both "
    "ends, the switch's counters; a full queue in front of a slow link loses packets as well",
)
def link_loses(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    The share of TCP segments that are sent again on each path, over a few seconds.
    ## Why it matters
    Every loss costs a round trip, or 0.2 s when it hits the end of a message; a ring waits for each of them.
    ## Check by hand
    `ss -tin` twice: `retrans:` grows on the paths of one node only.
    ## When it is harmless
    When a few are lost at the start of a transfer; less than five of a thousand are not told.  On nodes whose
    processors are overloaded up to three of a hundred are a warning only: acknowledgements come late there.
    """
    found = case.of(decide).lossy
    if found is None or min(f.seconds for f in found.flows) < SURE_S:
        return
    is_bad = found.loss >= WORST_LOSS or max(f.busy for f in found.flows) >= LOST_TIME
    if found.loss < SURE_LOSS and is_crowded(live, found.flows):
        is_bad = False  # whoever gets no processor acknowledges late, and his peers send again what was not lost
    yield Hit(
        culprits=Culprits(nodes=found.nodes, links=found.links),
        values={
            "where": names(live, found.nodes) if found.nodes else arrows(found.links),
            "loss": f"{found.loss:.2%}",
            "num": found.num_again,
            "others": f"{found.others_loss:.2%}",
        },
        severity=None if is_bad else Severity.WARNING,
        confidence=Confidence.CERTAIN if found.nodes and len(found.flows) > 1 else Confidence.LIKELY,
        evidence=tuple(told(found.flows[:8])),
    )
