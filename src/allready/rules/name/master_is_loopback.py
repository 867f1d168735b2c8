"""NAM002."""

from collections.abc import Iterator

from allready.judging.addresses import all_loopback, is_literal_loopback, reached
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import (
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    Hit,
    MasterContactFacts,
    NameFacts,
    PerNode,
    RemedyStep,
    RollCall,
    Severity,
    World,
)

_SOMEBODY = frozenset({"wrong_service", "stale_store", "other_job"})
"""Somebody answers on this machine: with localhost asked for literally, that one is the finding (PRT005, PRT006)."""


@Rule(
    code="NAM002",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_NAME,
    since="0.1",
    layer=Layer.NAME,
    title="MASTER_ADDR means this very machine on another node than node 0",
    message="on node {nodes} MASTER_ADDR {master} is {addresses}, the node itself: a loopback address leads to no "
    "other machine",
    remedy=(
        RemedyStep(
            explanation="give an address of node 0 that the other nodes can reach: --master-addr ADDRESS",
            where="every node",
        ),
        RemedyStep(
            explanation="list the addresses of node 0",
            where="node 0",
            command="hostname -I",
        ),
        RemedyStep(
            explanation="or correct the line of {master} in /etc/hosts",
            where="node {nodes}",
            command="grep -n -w {master} /etc/hosts",
        ),
    ),
)
def master_is_loopback(
    names: PerNode[NameFacts],
    world: World,
    contact: PerNode[MasterContactFacts] | None = None,
    roll: RollCall | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    Whether MASTER_ADDR resolves to nothing but 127.0.0.0/8 or ::1 on a node other than node 0, as the line
    `127.0.1.1 HOSTNAME` of Debian and Ubuntu and copied /etc/hosts files make it; or whether it is literally localhost.
    ## Why it matters
    The node looks for node 0 on itself and is refused by its own machine, for as long as the time-out allows.
    ## Check by hand
    `getent ahosts MASTER_ADDR` on the nodes named must print an address of node 0's network interface.
    ## When it is harmless
    On node 0 itself, which listens on all its addresses.  When all nodes of the job run on this one machine: a node
    that got through to node 0 is therefore never named.
    """
    if world.num_nodes < 2:
        return
    bad: dict[tuple[str, tuple[str, ...], bool], list[int]] = {}
    for node, facts in names.items():
        met = contact.get(node) if contact is not None else None
        addresses = facts.master_addresses or (met.addresses if met is not None else ())
        if met is not None and met.outcome == "loopback":
            addresses = met.addresses or addresses
        literal = is_literal_loopback(facts.master_name)
        if node == 0 or reached(met) or not all_loopback(addresses):
            continue
        if literal and met is not None and met.outcome in _SOMEBODY:
            continue
        bad.setdefault((facts.master_name, addresses, literal), []).append(node)
    for (master, addresses, literal), nodes in bad.items():
        yield _hit(world, tuple(nodes), master, addresses, literal=literal)
    own = names.get(0)
    if own is None or roll is None or bad:
        return
    if is_literal_loopback(own.master_name) and roll.missing and not set(roll.present) - {0}:
        # Whoever was given the same command elsewhere looks for node 0 on itself; but perhaps nobody was started yet.
        yield _hit(
            world,
            (0,),
            own.master_name,
            own.master_addresses,
            literal=True,
            severity=Severity.WARNING,
            confidence=Confidence.POSSIBLE,
        )


def _hit(
    world: World,
    nodes: tuple[int, ...],
    master: str,
    addresses: tuple[str, ...],
    *,
    literal: bool,
    severity: Severity | None = None,
    confidence: Confidence | None = None,
) -> Hit:
    return Hit(
        culprits=Culprits(nodes=nodes, variables=("MASTER_ADDR",) if literal else ()),
        severity=severity,
        # Literally localhost may be meant: all nodes on one machine, and node 0 not started.  A name never means that.
        confidence=confidence or (Confidence.LIKELY if literal else Confidence.CERTAIN),
        values={"nodes": world.labels(nodes), "master": master, "addresses": ", ".join(addresses) or master},
        evidence=tuple(
            Evidence(source="getaddrinfo", node_rank=n, text=f"{master} -> {', '.join(addresses)}") for n in nodes[:16]
        ),
    )
