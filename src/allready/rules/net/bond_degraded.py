"""NET029."""

import shlex
from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import listed, seen
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
