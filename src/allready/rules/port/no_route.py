"""PRT003."""

from collections.abc import Iterator

from allready.model import (
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    Hit,
    MasterContactFacts,
    NetFacts,
    PerNode,
    RollCall,
    Severity,
    World,
)
from allready.rules._common import host_is_silent, reached
from allready.rules.registry import Rule


@Rule(
    code="PRT003",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_NAME,
    since="0.1",
    depth=28,
    title="There is no route to MASTER_ADDR",
    message="node {nodes} has no route to MASTER_ADDR {master} ({address}): {detail}",
    remedy="compare {address} with the addresses of node 0 (there: hostname -I) and give one that node {nodes} can "
    "reach (--master-addr ADDRESS); if it is right, mend the route there: ip route get {address}",
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
    (START-PATH).  A machine that gives no sign of life on the node's own subnet is JOB011's.
    ## Why it matters
    No connection can be made; torch retries until its time-out and prints "timed out", as for every other cause.
    ## Check by hand
    `ip route get ADDRESS` on the nodes named: "unreachable", "blackhole" or a wrong interface; `ip route` beside the
    same on a node that gets through.
    ## When it is harmless
    While the network of a container or a virtual machine is still coming up.
    """
    others_in = any(reached(c) for c in contact.values()) or (roll is not None and bool(set(roll.present) - {0}))
    groups: dict[tuple[str, str, str], list[int]] = {}
    for node, facts in contact.items():
        if facts.outcome == "no_route" and not host_is_silent(facts, net.get(node) if net is not None else None):
            key = (facts.master_addr, facts.address or facts.master_addr, facts.detail or "no route to host")
            groups.setdefault(key, []).append(node)
    for (master, address, detail), nodes in groups.items():
        yield Hit(
            culprits=Culprits(nodes=tuple(nodes), variables=() if others_in else ("MASTER_ADDR",)),
            fault_class=FaultClass.START_PATH if others_in else None,
            confidence=Confidence.CERTAIN if others_in else Confidence.LIKELY,
            values={"nodes": world.labels(nodes), "master": master, "address": address, "detail": detail},
            evidence=tuple(
                Evidence(source="attempts to reach node 0", node_rank=n, text=f"{address}: {contact[n].detail}")
                for n in nodes[:16]
            ),
        )
