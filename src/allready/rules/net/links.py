import shlex
from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.majority import Split
from allready.judging.node_split import brief, some
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import listed, on_nodes, seen
from allready.model import (
    Bond,
    Culprits,
    FaultClass,
    Hit,
    NetFacts,
    PerNode,
    RdmaFacts,
    RemedyStep,
    Severity,
    TransportFacts,
    World,
)
from allready.names import BONDS_FOLDER
from allready.rules.net._interfaces import Chosen, needed_choices

RESERVE = "active-backup"
"""The mode in which one link carries everything and the others wait."""


@Rule(
    code="NET029",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.MACHINE,
    title="A bond works with fewer links than it has",
    message="node {node}: {num_left} of the {num_links} links of {bond} are in use[[ ({mode})]][[; down: {down}]]"
    "[[; in another aggregate than the active one: {apart}]]",
    remedy=(
        RemedyStep(
            explanation="look at the link: cable, transceiver, switch port",
            where="node {node}",
            command="cat /proc/net/bonding/{bond}; ethtool {first}; ip -s link show dev {first}",
        ),
        RemedyStep(
            explanation="links of different aggregates: put their ports into one LACP group on the switch",
            where="node {node}",
            command="{lacp}",
        ),
    ),
)
def bond_degraded(net: PerNode[NetFacts], world: World, case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    Bonds of the kernel's bonding driver that are up: links that are down while others are up, and, for LACP, links
    that are in another aggregate than the active one (only root may read which that is). A warning where NCCL, Gloo or
    RoCE use the bond, else information; in the mode active-backup, which loses only its reserve, always information.
    ## Why it matters
    The bond stays up and everything works, with a half of the bandwidth or less: this node is the slowest of the job,
    and all others wait for it.
    ## Check by hand
    `cat /proc/net/bonding/bond0`: MII Status and Aggregator ID of each interface.
    ## When it is harmless
    Where a second port is left without a cable on purpose.
    """
    for node, facts in net.items():
        for bond in facts.bonds:
            down = [link.name for link in bond.links if not link.is_up]
            apart = [
                link.name
                for link in bond.links
                if link.is_up and None not in {bond.aggregator, link.aggregator} and link.aggregator != bond.aggregator
            ]
            lost = [*down, *apart]
            path = f"{BONDS_FOLDER}/{bond.name}"
            if not bond.is_up or not lost or len(lost) == len(bond.links):
                continue
            is_used = RESERVE not in bond.mode and _is_used(node, bond, case)
            yield Hit(
                severity=None if is_used else Severity.INFO,
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "bond": bond.name,
                    "down": listed(down, 4) or None,
                    "apart": listed(apart, 4) or None,
                    "first": lost[0],
                    "lacp": f"grep -E 'Slave Int|Aggregator' {shlex.quote(path)}" if apart else "",
                    "num_left": len(bond.links) - len(lost),
                    "num_links": len(bond.links),
                    "mode": bond.mode,
                },
                evidence=seen(
                    path,
                    {
                        node: tuple(
                            said(
                                "{link} {state}[[, aggregator {aggregator}]]",
                                link=link.name,
                                state="up" if link.is_up else "down",
                                aggregator=link.aggregator,
                            )
                            for link in bond.links
                        )
                    },
                ),
            )


def _is_used(node: int, bond: Bond, case: Analysis) -> bool:
    """Whether sockets of NCCL or Gloo go over it, also by a VLAN on it, or a RoCE device has it."""
    transport, rdma = case.facts(TransportFacts).get(node), case.facts(RdmaFacts).get(node)
    names = [*transport.nccl.interfaces, *transport.gloo.interfaces] if transport is not None else []
    over = any(name.partition(".")[0].partition(":")[0] == bond.name for name in names)
    return over or (rdma is not None and any(port.bond == bond.name for port in rdma.ports))


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
