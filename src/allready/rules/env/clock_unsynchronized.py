"""ENV019."""

from collections.abc import Iterator

from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import stated
from allready.model import (
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


@Rule(
    code="ENV019",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
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
