import shlex
from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.majority import Split
from allready.judging.node_split import brief, some
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import on_nodes, seen
from allready.model import Culprits, FaultClass, Hit, NetFacts, PerNode, RemedyStep, Severity, TransportFacts
from allready.rules.net._interfaces import Chosen, needed_choices


@Rule(
    code="NET018",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.READINESS,
    title="Interfaces have different link speeds",
    message="{library}: the link speed (Mbit/s) of the interfaces it will use differs between nodes: {split}",
    remedy=RemedyStep(
        explanation="check the slower link: one that negotiated below its speed needs another cable, transceiver or "
        "switch port; a wrong interface is changed with {variable}",
        where="node {where}",
        command="{command}",
    ),
)
def link_speed_differs(net: PerNode[NetFacts], transport: PerNode[TransportFacts], case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    The kernel's speed of the interfaces that NCCL and Gloo will use, added up on each node. Nodes whose speed is
    unknown (most virtual machines) are left out.
    ## Why it matters
    A link that negotiated 1 Gbit/s instead of 100 works, and slows every collective of the job to its pace.
    ## Check by hand
    `cat /sys/class/net/IFNAME/speed` or `ethtool IFNAME` on two nodes.
    ## When it is harmless
    When data goes over InfiniBand and these interfaces carry only the bootstrap; when the few nodes that differ are
    faster, it is information only.
    """
    reported = []
    for library in ("NCCL", "Gloo"):
        chosen = {n: c for n, items in case.of(needed_choices).items() for c in items if c.backend == library}
        speed = {n: total for n, c in chosen.items() if n in net and (total := _speed(net[n], c))}
        num_unknown = case.world.num_nodes - len(net) + len(chosen.keys() - speed.keys())
        split = Split.by(speed, num_members=len(speed) + num_unknown)
        if len(split) < 2 or split.groups in reported:
            continue
        reported.append(split.groups)
        odd = split.outliers()
        faster = bool(odd) and all(speed[n] > int(split.groups[0][0] or 0) for n in odd)
        slowest = min(speed, key=lambda n: speed[n])
        yield Hit(
            severity=Severity.INFO if faster else None,
            culprits=Culprits(nodes=() if faster else odd),
            values={
                "library": library,
                "split": brief(split),
                "where": on_nodes(case.world, [n for n in speed if speed[n] == speed[slowest]]),
                "command": f"ethtool {shlex.quote(chosen[slowest].choice.interfaces[0])}",
                "variable": chosen[slowest].choice.variable,
            },
            evidence=seen(
                "/sys/class/net/*/speed",
                {
                    n: said("{interfaces}: {speed} Mbit/s in total", interfaces=chosen[n].names, speed=speed[n])
                    for n in some(speed, odd)
                },
            ),
        )


def _speed(net: NetFacts, chosen: Chosen) -> int:
    """Of all interfaces together; 0 where one of them is not known."""
    speeds = [(i.speed_mbit_per_s or 0) if (i := net.interface(n)) else 0 for n in chosen.choice.interfaces]
    return sum(speeds) if all(s > 0 for s in speeds) else 0
