"""NAM001."""

from collections.abc import Iterator

from allready.judging.addresses import reached
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import (
    Culprits,
    Evidence,
    FaultClass,
    Hit,
    MasterContactFacts,
    NameFacts,
    PerNode,
    RemedyStep,
    Severity,
    World,
)


@Rule(
    code="NAM001",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_NAME,
    since="0.1",
    layer=Layer.NAME,
    title="MASTER_ADDR does not resolve",
    message="node {nodes} cannot resolve MASTER_ADDR {master}: {error}",
    remedy=(
        RemedyStep(
            explanation="give the address of node 0 instead of its name: --master-addr ADDRESS",
            where="every node",
        ),
        RemedyStep(
            explanation="or add the name to the hosts file",
            where="node {nodes}",
            command="echo 'ADDRESS {master}' | sudo tee -a /etc/hosts",
        ),
    ),
)
def master_unresolved(
    names: PerNode[NameFacts], world: World, contact: PerNode[MasterContactFacts] | None = None
) -> Iterator[Hit]:
    """
    ## What it checks
    That MASTER_ADDR resolves to at least one address on every node.  A name that resolved later (a pod's name often
    takes seconds to appear in DNS) is no fault once the node got through.
    ## Why it matters
    The node retries until its time-out, 60 to 1800 s, and the resolver's words drown in a traceback.
    ## Check by hand
    `getent ahosts MASTER_ADDR` on the nodes named, and on one where it works; `cat /etc/resolv.conf`.
    ## When it is harmless
    While DNS is still learning the name, in the first seconds of a pod.
    """
    bad: dict[tuple[str, str], list[int]] = {}
    for node, facts in names.items():
        met = contact.get(node) if contact is not None else None
        tried = met is not None and met.outcome != "not_tried"
        unresolved = met.outcome == "unresolved" if met is not None and tried else not facts.master_addresses
        if unresolved and not reached(met):
            why = facts.master_error or (met.detail if met is not None else "") or "?"
            bad.setdefault((facts.master_name, why), []).append(node)
    for (master, error), nodes in bad.items():
        yield Hit(
            culprits=Culprits(nodes=tuple(nodes)),
            values={"nodes": world.labels(nodes), "master": master, "error": error},
            evidence=tuple(Evidence(source="getaddrinfo", node_rank=n, text=f"{master}: {error}") for n in nodes[:16]),
        )
