"""NAM006."""

from collections.abc import Iterator

from allready.judging.addresses import is_loopback, own_addresses, reached
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import (
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    Hit,
    MasterContactFacts,
    NetFacts,
    PerNode,
    RemedyStep,
    Severity,
    World,
)


@Rule(
    code="NAM006",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_NAME,
    since="0.1",
    layer=Layer.NAME,
    title="A node other than node 0 has MASTER_ADDR itself",
    message="MASTER_ADDR {master} is {address}, an address of node {node} itself, which is not node 0",
    remedy=(
        RemedyStep(
            explanation="give the address of node 0: --master-addr ADDRESS",
            where="node {node}",
        ),
        RemedyStep(
            explanation="or, if this machine is to be node 0, start it with --node-rank 0",
            where="node {node}",
        ),
    ),
)
def master_is_self(contact: PerNode[MasterContactFacts], net: PerNode[NetFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether the address that a node tries for node 0 belongs to one of its own interfaces, while it has not got through.
    ## Why it matters
    The node waits for itself.  Either it was given the wrong node rank, or each node was given its own address as
    MASTER_ADDR, for example by `--master-addr $(hostname)` in a script that runs everywhere.
    ## Check by hand
    `ip -br address` on the node named, and `getent ahosts MASTER_ADDR`.
    ## When it is harmless
    When several nodes of the job share one machine and node 0 is not started yet.
    """
    if world.num_nodes < 2:
        return
    for node, facts in contact.items():
        address = facts.address
        if node == 0 or reached(facts) or address is None or is_loopback(address):
            continue
        if address in own_addresses(net[node]):
            holder = facts.local_holder
            listening = f"; listens here: pid {holder.pid} {holder.command}" if holder is not None else ""
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                confidence=Confidence.LIKELY,
                values={"node": world.label(node), "master": facts.master_addr, "address": address},
                evidence=(
                    Evidence(
                        source="attempts to reach node 0",
                        node_rank=node,
                        text=f"{facts.outcome} at {address}:{facts.master_port}: {facts.detail}{listening}",
                    ),
                ),
            )
