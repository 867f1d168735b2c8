"""NET018."""

import shlex
from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.majority import Split
from allready.judging.node_split import brief, some
from allready.judging.registry import Rule
from allready.judging.values import on_nodes
from allready.model import (
    Culprits,
    Evidence,
    FaultClass,
    GpuFacts,
    Hit,
    LaunchFacts,
    NetFacts,
    PerNode,
    RemedyStep,
    Severity,
    TransportFacts,
    World,
)
from allready.rules.net._interfaces import needed_choices


@Rule(
    code="NET018",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    since="0.1",
    layer=Layer.READINESS,
    title="Interfaces of different speed",
    message="{library}: the interfaces that will be used differ in speed (Mbit/s) between nodes: {split}",
    remedy=RemedyStep(
        explanation="check the speed of the slower link; one that came up below its speed needs another cable, "
        "transceiver or switch port, and the wrong interface is chosen with {variable}",
        where="node {where}",
        command="{command}",
    ),
)
def link_speed_differs(
    net: PerNode[NetFacts],
    transport: PerNode[TransportFacts],
    world: World,
    launch: PerNode[LaunchFacts] | None = None,
    gpu: PerNode[GpuFacts] | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    The speed that the kernel gives for the interfaces that NCCL and Gloo will use, all together on each node. Nodes
    whose speed is not known (most virtual machines) are left out.
    ## Why it matters
    A link that trained to 1 Gbit/s instead of 100 works, and slows every collective of the job to its pace.
    ## Check by hand
    `cat /sys/class/net/IFNAME/speed` or `ethtool IFNAME` on two nodes.
    ## When it is harmless
    When the data goes over InfiniBand and these interfaces carry only the set-up, or the few nodes that differ are
    faster (then it is only information).
    """
    reported: set[tuple[tuple[str, tuple[int, ...]], ...]] = set()
    chosen = needed_choices(transport, launch, gpu)
    for library in ("NCCL", "Gloo"):
        speed: dict[int, int] = {}
        names: dict[int, tuple[str, ...]] = {}
        variable = ""
        for node, items in chosen.items():
            for item in items:
                interfaces = [net[node].interface(n) for n in item.choice.interfaces] if node in net else []
                speeds = [i.speed_mbit_per_s for i in interfaces if i and i.speed_mbit_per_s and i.speed_mbit_per_s > 0]
                if item.backend == library and speeds and len(speeds) == len(interfaces):
                    speed[node], names[node] = sum(speeds), item.choice.interfaces
                    variable = item.choice.variable
        split = Split.by(speed)
        if len(split) < 2 or split.groups in reported:
            continue
        reported.add(split.groups)
        outliers = split.outliers()
        faster = bool(outliers) and all(speed[n] > int(split.groups[0][0]) for n in outliers)
        slowest = min(speed, key=lambda n: speed[n])
        yield Hit(
            severity=Severity.INFO if faster else None,
            culprits=Culprits(nodes=() if faster else outliers),
            values={
                "library": library,
                "split": brief(split),
                "where": on_nodes(world, [n for n in speed if speed[n] == speed[slowest]]),
                "command": f"ethtool {shlex.quote(names[slowest][0])}",
                "variable": variable,
            },
            evidence=tuple(
                Evidence(
                    source="/sys/class/net/*/speed", node_rank=n, text=f"{','.join(names[n])}: {speed[n]} Mbit/s in all"
                )
                for n in some(speed, outliers)
            ),
        )
