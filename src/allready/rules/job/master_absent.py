"""JOB011."""

from collections.abc import Iterator

from allready.judging.addresses import (
    endpoint,
    host_is_silent,
    is_loopback,
    is_misnamed,
    is_name,
    own_addresses,
    reached,
)
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
    RollCall,
    Severity,
    World,
)


@Rule(
    code="JOB011",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_ABSENT,
    since="0.1",
    layer=Layer.ABSENCE,
    title="Node 0 is not there",
    message="node {nodes} finds nobody at {address} after {waited_s} s: node 0 has not started there",
    remedy=(
        RemedyStep(
            explanation="start the command with --node-rank 0",
            where="{master}",
        ),
        RemedyStep(
            explanation="if it runs there, compare its --master-port with {port}, and what the name means on "
            "both sides",
            where="{master}",
            command="ss -ltnp; getent hosts {master}",
        ),
    ),
)
def master_absent(
    contact: PerNode[MasterContactFacts],
    world: World,
    net: PerNode[NetFacts] | None = None,
    roll: RollCall | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    What the other nodes see of node 0 while none of them gets through.  Node 0 is missing when its machine gives no
    sign of life on a subnet that this node is directly connected to (only "possible" where MASTER_ADDR is a name, see
    PRT003), or when the machine refuses the port and nothing of the kind answers on a port nearby.

    A refused port alone tells two causes not apart: node 0 is not started, or it listens on another port.  PRT001 says
    so and comes first; this finding then stands beside it as possible.  Silence (PRT002) and a missing route (PRT003)
    beyond a router are findings of their own.
    ## Why it matters
    The store lives on node 0.  Workers would try for 60 to 1800 seconds and then speak of a network time-out.
    ## Check by hand
    On node 0's machine: `pgrep -af allready`, `ss -ltnp`; from here: `ping MASTER_ADDR`, `ip neigh show`.
    ## When it is harmless
    While node 0 is still being started.  Before `--wait` has passed the status is "waiting".
    """
    if any(reached(c) for c in contact.values()) or (roll is not None and set(roll.present) - {0}):
        return
    found: dict[Confidence, list[int]] = {}
    for node, facts in contact.items():
        confidence = _confidence(facts, net.get(node) if net is not None else None)
        if confidence is not None:
            found.setdefault(confidence, []).append(node)
    if not found:
        return
    confidence = max(found, key=lambda c: c.weight)
    nodes = tuple(found[confidence])
    first = contact[nodes[0]]
    yield Hit(
        culprits=Culprits(nodes=(0,)),
        confidence=confidence,
        values={
            "nodes": world.labels(nodes),
            "address": endpoint(first.address or first.master_addr, first.master_port),
            "waited_s": f"{max(contact[n].waited_s for n in nodes):.1f}",
            "master": first.master_addr,
            "port": first.master_port,
        },
        evidence=tuple(
            Evidence(
                source="attempts to reach node 0",
                node_rank=n,
                text=f"{contact[n].outcome}, {contact[n].attempts} attempts: {contact[n].detail}",
            )
            for n in nodes[:16]
        ),
    )


def _confidence(facts: MasterContactFacts, net: NetFacts | None) -> Confidence | None:
    if host_is_silent(facts, net):  # a name may lead to another machine here: PRT003
        return Confidence.POSSIBLE if is_name(facts.master_addr) else Confidence.LIKELY
    here = is_misnamed(facts.master_addr, facts.addresses) or (
        net is not None and not is_loopback(facts.address or "") and facts.address in own_addresses(net)
    )
    if facts.outcome != "refused" or facts.heard_by_datagram or facts.rejected_by or here:
        return None
    if facts.nearby is None:
        return Confidence.POSSIBLE
    return None if any(service == "allready" for _, service in facts.nearby) else Confidence.LIKELY
