from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.model import Confidence, Culprits, FaultClass, Hit, Live, RemedyStep, Severity
from allready.rules.slow._blame import WORST_LOSS, blame
from allready.rules.slow._traffic import LOST_TIME, flow_evidence

SURE_LOSS = 0.03


@Rule(
    code="SLW008",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.PACE,
    applies=Applies.CONNECTIONS,
    explains=("COL014",),
    title="Packet loss on the path to or from one node",
    message="{where} loses packets: {loss} of its TCP segments ({num}), {others} on the other paths; "
    "each loss makes all ranks wait",
    remedy=(
        RemedyStep(
            explanation="check cable, port and the switch's counters, on both ends",
            where="node {node}",
            command="ip -s link; ethtool -S IFNAME | grep -i -E 'err|drop|crc'",
        ),
        RemedyStep(
            explanation="a full queue in front of a slow link loses packets as well; measure all paths",
            where="every node",
            command="allready check",
        ),
    ),
)
def link_loses(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    The share of TCP segments that are retransmitted on each path, over a few seconds, without those of which the
    other end says that they had arrived (DSACK).
    ## Why it matters
    Every loss costs a round trip, or 0.2 s at the end of a message; a ring waits for each of them.
    ## Check by hand
    `ss -tin` twice: `retrans:` grows on the paths of one node only.
    ## When it is harmless
    A few losses at the start of a transfer; less than five of a thousand are not reported. On nodes with CPU contention
    up to three of a hundred are only a warning where the other end does not say what came twice (no SACK, an old
    kernel): acknowledgements come late there.
    """
    found = case.of(blame).lossy
    if found is None or not found.is_sure:
        return
    loss, others = found.loss
    is_bad = loss >= WORST_LOSS or max(f.busy for f in found.flows) >= LOST_TIME
    # A node without a free CPU acknowledges late, and its peers retransmit what was not lost: it says so afterwards.
    is_known = all(f.is_loss_known for f in found.flows)
    is_doubtful = loss < SURE_LOSS and not is_known and found.has_cpu_contention(live)
    yield Hit(
        culprits=Culprits(nodes=found.nodes, links=found.links),
        values={
            "where": found.where(live),
            "node": found.place(live),
            "loss": f"{loss:.2%}",
            "num": sum(f.num_lost for f in found.flows),
            "others": f"{others:.2%}",
        },
        severity=None if is_bad and not is_doubtful else Severity.WARNING,
        confidence=Confidence.CERTAIN if found.nodes and len(found.flows) > 1 else Confidence.LIKELY,
        evidence=tuple(flow_evidence(found.flows[:8])),
    )
