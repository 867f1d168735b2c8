"""PRT003."""

from collections.abc import Iterator

from allready.judging.addresses import host_is_silent, is_name, reached
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
    code="PRT003",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_NAME,
    since="0.1",
    layer=Layer.NAME,
    title="There is no route to MASTER_ADDR",
    message="node {nodes} has no route to MASTER_ADDR {master} ({address}): {detail}",
    remedy=(
        RemedyStep(
            explanation="compare {address} with the addresses of node 0",
            where="node 0",
            command="hostname -I",
        ),
        RemedyStep(
            explanation="if it is not among them, give an address that this node can reach: --master-addr ADDRESS",
            where="node {nodes}",
        ),
        RemedyStep(
            explanation="if it is right, fix the route",
            where="node {nodes}",
            command="ip route get {address}",
        ),
    ),
)
def no_route(
    contact: PerNode[MasterContactFacts],
    world: World,
    net: PerNode[NetFacts] | None = None,
    roll: RollCall | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    Nodes whose kernel, or a router on the way, says that there is no way to the address of node 0.  While nobody gets
    through, the address itself is the suspect (START-NAME); once other nodes do, the route of the node named is
    (START-PATH).  A machine that gives no sign of life on the node's own subnet is JOB011's, unless MASTER_ADDR is a
    name: it may mean another machine here (an old line in /etc/hosts), or the machine is off.  Then the path is named
    and nobody is blamed (START-PATH, likely).
    ## Why it matters
    No connection can be made; torch retries until its time-out and prints "timed out", as for every other cause.
    ## Check by hand
    `ip route get ADDRESS` on the nodes named: "unreachable", "blackhole" or a wrong interface; `ip route` beside the
    same on a node that gets through.  `getent hosts NAME` on both sides; `ip neigh` says FAILED for a silent machine.
    ## When it is harmless
    While the network of a container or a virtual machine is still coming up.
    """
    others_in = any(reached(c) for c in contact.values()) or (roll is not None and bool(set(roll.present) - {0}))
    groups: dict[tuple[str, str, str, bool], list[int]] = {}
    for node, facts in contact.items():
        is_silent = host_is_silent(facts, net.get(node) if net is not None else None)
        if facts.outcome == "no_route" and (not is_silent or is_name(facts.master_addr)):
            detail = facts.detail or "no route to host"
            key = (facts.master_addr, facts.address or facts.master_addr, detail, is_silent)
            groups.setdefault(key, []).append(node)
    for (master, address, detail, is_silent), nodes in groups.items():
        if is_silent:
            culprits = Culprits(links=tuple((n, 0) for n in nodes))
        else:
            culprits = Culprits(nodes=tuple(nodes), variables=() if others_in else ("MASTER_ADDR",))
        yield Hit(
            culprits=culprits,
            fault_class=FaultClass.START_PATH if others_in or is_silent else None,
            confidence=Confidence.CERTAIN if others_in and not is_silent else Confidence.LIKELY,
            values={"nodes": world.labels(nodes), "master": master, "address": address, "detail": detail},
            evidence=tuple(
                Evidence(source="attempts to reach node 0", node_rank=n, text=f"{address}: {contact[n].detail}")
                for n in nodes[:16]
            ),
        )
