from collections.abc import Iterator
from statistics import median

from allready.judging.majority import is_minority
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import MAX_EVIDENCE, listed, on_nodes
from allready.model import ClockFacts, Culprits, FaultClass, Hit, PerNode, RemedyStep, Severity, World

LIMIT_S = 1.0


@Rule(
    code="ENV004",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    title="Clocks are not synchronized",
    message="the clocks differ by up to {largest_s} s (node minus node 0): {offsets}",
    remedy=(
        RemedyStep(
            explanation="synchronize the clock (with systemd-timesyncd: timedatectl set-ntp true)",
            where="node {nodes}",
            command="chronyc makestep",
        ),
        RemedyStep(explanation="until then shift the timestamps of logs by these offsets before comparing them"),
    ),
)
def clock_offset(clock: PerNode[ClockFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The difference between each node's wall clock and node 0's, measured by round trips over the check's connection.
    Only what exceeds 1 s beyond the uncertainty of the measurement counts. The nodes away from the median are named, if
    they are the minority; when all others differ from node 0 alike, that is node 0.
    ## Why it matters
    No collective depends on it. But logs of different nodes are read in the wrong order, so that a victim seems to have
    failed first; tokens and certificates are refused; make, caches and checkpoints use wrong file times.
    ## Check by hand
    `date +%s.%N` on two nodes at once, `chronyc tracking`, `timedatectl`.
    ## When it is harmless
    For the job itself nearly always.
    """
    offsets = {0: (0.0, 0.0)} | {node: (c.offset_s, abs(c.uncertainty_s)) for node, c in clock.items()}
    off = {n: o for n, (o, uncertainty) in offsets.items() if abs(o) - uncertainty > LIMIT_S}
    if not off:
        return
    middle = median(o for o, _ in offsets.values())
    apart = tuple(sorted(n for n, (o, uncertainty) in offsets.items() if abs(o - middle) - uncertainty > LIMIT_S))
    shown = sorted(off, key=lambda n: (-abs(off[n]), n))
    yield Hit(
        culprits=Culprits(nodes=apart if is_minority(len(apart), len(offsets)) else ()),
        values={
            "largest_s": f"{max(map(abs, off.values())):.1f}",
            "offsets": listed([f"{world.label(n)} {off[n]:+.1f} s" for n in shown], 6),
            "nodes": on_nodes(world, apart),
        },
        evidence=tuple(
            stated(
                "round trips to node 0",
                "offset {offset} s, uncertainty {uncertainty} s",
                node_rank=n,
                offset=f"{offsets[n][0]:+.4f}",
                uncertainty=f"{offsets[n][1]:.4f}",
            )
            for n in shown[:MAX_EVIDENCE]
        ),
    )
