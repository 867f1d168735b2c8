"""A link that is slower than the others."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.link_paths import arrows
from allready.judging.registry import Applies, Layer, Rule
from allready.model import Confidence, Culprits, FaultClass, Hit, Live, RemedyStep, Severity
from allready.rules.slow._blame import WORST_LOSS, blame
from allready.rules.slow._traffic import LOST_TIME, flow_evidence

FAR_SLOWER = 4.0
"""So many times slower than the others a path must be where its nodes have too few CPUs."""


@Rule(
    code="SLW007",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.PACE,
    applies=Applies.CONNECTIONS,
    explains=("COL014",),
    title="The network of one node is slower than the others', and all ranks wait for it",
    message="{where} has a slow network: data {paths} is acknowledged at {rate} Mbit/s, elsewhere at {others} Mbit/s, "
    "with a round trip of {rtt} ms; the job waits for it {cost} of the time",
    remedy=(
        RemedyStep(
            explanation="check negotiated speed, rate limits, errors and other traffic of that link, and its switch "
            "port",
            where="node {node}",
            command="ethtool IFNAME | grep Speed; tc -s qdisc show; ip -s link; sar -n DEV 1 3",
        ),
        RemedyStep(explanation="measure all paths", where="every node", command="allready check"),
    ),
)
def link_slow(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    The kernel's counters of the ranks' TCP connections over a few seconds: for how much of the time each has data in
    flight, how fast it is acknowledged, and how long packets take. On one path data is always in flight and takes long,
    while the senders on all other paths are mostly idle.
    ## Why it matters
    A ring runs at the pace of its slowest link. The ranks enter every operation together and look alike from inside.
    ## Check by hand
    `ss -tin` on the nodes, twice: `busy:` grows all the time on the slow path only; `delivery_rate`, `rtt`.
    ## When it is harmless
    While something else uses the link for a moment, for example a checkpoint that is copied away. On nodes with CPU
    contention it is a warning, unless the path is four times slower than the others.
    """
    path = case.of(blame).path
    if path is None or not path.is_sure:
        return
    rate, others = path.mbit_per_s
    is_doubtful = path.has_cpu_contention(live) and others < FAR_SLOWER * rate
    yield Hit(
        severity=Severity.WARNING if is_doubtful else None,
        culprits=Culprits(nodes=path.nodes, links=path.links),
        values={
            "where": path.where(live),
            "node": path.place(live),
            "paths": arrows((f.src, f.dst) for f in path.flows),
            "rate": f"{rate:.3g}",
            "others": f"{others:.3g}",
            "cost": f"{path.cost:.0%}",
            "rtt": f"{max(f.rtt_s for f in path.flows) * 1000:.1f}",
        },
        confidence=Confidence.CERTAIN if len(path.flows) > 1 or not path.nodes else Confidence.LIKELY,
        evidence=(*flow_evidence(path.flows[:6]), *flow_evidence(path.others[:4])),
    )


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
