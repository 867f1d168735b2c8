"""PRT012."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, Hit, LaunchFacts, NetFacts, PerNode, RemedyStep, Severity, World


@Rule(
    code="PRT012",
    severity=Severity.INFO,
    fault_class=FaultClass.START_PATH,
    layer=Layer.READINESS,
    title="The master port is one that the kernel gives to outgoing connections",
    message="node {node}: the master port[[ {port}]] is within the range {range} of which the kernel takes ports for "
    "outgoing connections; now and then it will be in use",
    remedy=(
        RemedyStep(explanation="use a port outside of that range[[, for example {other}]]", where="every node"),
        RemedyStep(
            explanation="or keep this port free, as root",
            where="node {node}",
            command="sysctl -w net.ipv4.ip_local_reserved_ports={port}",
        ),
    ),
)
def ephemeral_master_port(net: PerNode[NetFacts], launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether the master port of a job of several nodes is within `net.ipv4.ip_local_port_range` of node 0 and not one of
    `net.ipv4.ip_local_reserved_ports`.
    ## Why it matters
    Any outgoing connection of any program (a monitor, a file system, another job) may have just this port when the job
    starts: one start of many ends with EADDRINUSE, and a later look finds no listener.
    ## Check by hand
    `sysctl net.ipv4.ip_local_port_range net.ipv4.ip_local_reserved_ports`; `ss -tan 'sport = :PORT'`.
    ## When it is harmless
    Where the launcher tries another port when one is in use.
    """
    for node, facts in net.items():
        job = launch.get(node)
        if job is None or facts.local_port_range is None or job.num_nodes < 2 or job.node_rank != 0:
            continue
        low, high = facts.local_port_range
        port = job.master_port
        if low <= port <= high and not any(first <= port <= last for first, last in facts.reserved_ports):
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "port": port,
                    "range": f"{low}-{high}",
                    "other": next(
                        (p for p in (29500, 29400, 20000, high + 1) if not low <= p <= high and p < 65536), None
                    ),
                },
                evidence=seen("net.ipv4.ip_local_port_range", {node: f"{low} {high}"}),
            )
