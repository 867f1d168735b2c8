"""The clocks of the nodes."""

from collections.abc import Iterator
from statistics import median

from allready.judging.majority import is_minority
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import MAX_EVIDENCE, listed, on_nodes
from allready.model import (
    ClockFacts,
    Confidence,
    Culprits,
    FaultClass,
    Hit,
    HostFacts,
    PerNode,
    RemedyStep,
    Severity,
    TimeFacts,
    World,
)

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


@Rule(
    code="ENV019",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    title="Nothing keeps this machine's clock",
    message="node {node}: the kernel holds the clock to be unsynchronized, and no time service runs",
    remedy=(
        RemedyStep(
            explanation="start one of them (chrony, systemd-timesyncd)",
            where="node {node}",
            command="sudo timedatectl set-ntp true",
        ),
        RemedyStep(explanation="compare the clocks of the nodes: allready check", where="every node"),
    ),
)
def clock_unsynchronized(time: PerNode[TimeFacts], host: PerNode[HostFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The kernel's state of the clock (adjtimex, which needs no root), and whether a program that keeps the clock runs
    (chrony, ntpd, systemd-timesyncd, PTP, a hypervisor's tools). Some of these never tell the kernel, therefore one
    that runs is enough. In a container the host's programs cannot be seen, and nothing is reported.
    ## Why it matters
    The clock drifts by seconds a day: logs of different nodes are read in the wrong order, so that a victim seems to
    have failed first, and tokens and certificates are refused. `allready check` measures the offset itself.
    ## Check by hand
    `timedatectl`, `chronyc tracking`, `adjtimex --print`.
    ## When it is harmless
    On a virtual machine whose host sets the clock, and for a job on one machine.
    """
    for node, facts in time.items():
        machine = host.get(node)
        if machine is None or machine.container is not None or facts.is_synchronized or facts.services:
            continue
        yield Hit(
            confidence=Confidence.POSSIBLE,
            culprits=Culprits(nodes=(node,)),
            values={"node": world.label(node)},
            evidence=(stated("adjtimex", "unsynchronized; no time service", node_rank=node),),
        )
