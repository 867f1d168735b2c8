"""PRT014."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import seen
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    Hit,
    LaunchFacts,
    NetFacts,
    PerNode,
    RemedyStep,
    Severity,
    World,
)

PER_RANK = 16
"""Those on which it listens, and its own ends of connections: of 4 ranks over Gloo each held 4 ports with one group and
13 with four (torch 2.13, one machine)."""
BESIDE = 32
"""For the rest of the machine."""


@Rule(
    code="PRT014",
    severity=Severity.WARNING,
    fault_class=FaultClass.START_PATH,
    layer=Layer.ENVIRONMENT,
    title="The kernel has few ports to give away",
    message="node {node}: the kernel gives out {count} ports only ({range}), and {ranks} ranks with what else runs "
    "here may need {needed}",
    remedy=(
        RemedyStep(
            explanation="widen the range; where a firewall lets in only these ports, open more of them first",
            where="node {node}",
            command='sudo sysctl -w net.ipv4.ip_local_port_range="32768 60999"',
        ),
        RemedyStep(
            explanation="see how many are in use", where="node {node}", command="ss -tan | tail -n +2 | wc -l; ss -s"
        ),
    ),
)
def few_local_ports(net: PerNode[NetFacts], launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    How many ports `net.ipv4.ip_local_port_range` has without those of `net.ipv4.ip_local_reserved_ports`, against 16
    for each rank of the node and 32 for everything else. A warning for a job of several nodes, else information.
    ## Why it matters
    From this range come the ports on which NCCL and Gloo listen and every outgoing connection, also those that were
    closed less than a minute ago. When none is left, a rank ends with "Cannot assign requested address" or "Address
    already in use" while the others wait for it; often not at the first start, but at the second.
    ## Check by hand
    `sysctl net.ipv4.ip_local_port_range net.ipv4.ip_local_reserved_ports`; `ss -s`.
    ## When it is harmless
    For a job with one small group, on a machine where nothing else opens connections.
    """
    for node, facts in net.items():
        job = launch.get(node)
        if job is None or facts.local_port_range is None:
            continue
        low, high = max(facts.local_port_range[0], 1), min(facts.local_port_range[1], 65535)
        reserved = {p for a, b in facts.reserved_ports for p in range(max(a, low), min(b, high) + 1)}
        count = max(0, high - low + 1 - len(reserved))
        needed = PER_RANK * job.nproc_per_node + BESIDE
        if count < needed:
            yield Hit(
                severity=None if world.num_nodes > 1 else Severity.INFO,
                confidence=Confidence.POSSIBLE,
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "count": count,
                    "range": f"{low}-{high}",
                    "ranks": job.nproc_per_node,
                    "needed": needed,
                },
                evidence=seen(
                    "net.ipv4.ip_local_port_range",
                    {node: said("{low} {high}; reserved of these: {num}", low=low, high=high, num=len(reserved))},
                ),
            )
