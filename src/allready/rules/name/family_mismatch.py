"""NAM004."""

from collections.abc import Iterator

from allready.judging.addresses import parse
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import Culprits, Evidence, FaultClass, Hit, MasterContactFacts, PerNode, RemedyStep, Severity, World


@Rule(
    code="NAM004",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_NAME,
    since="0.1",
    layer=Layer.NAME,
    title="MASTER_ADDR is of an address family that the node does not have",
    message="MASTER_ADDR {master} is {addresses}, and node {nodes} has no {family}",
    remedy=(
        RemedyStep(
            explanation="give node 0's address of a family that all nodes have (--master-addr ADDRESS); its "
            "addresses are",
            where="node 0",
            command="ip -br address",
        ),
        RemedyStep(
            explanation="or enable {family}",
            where="node {nodes}",
        ),
    ),
)
def family_mismatch(contact: PerNode[MasterContactFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether every address of MASTER_ADDR is IPv6 on a node that has only IPv4, or the reverse.
    ## Why it matters
    No connection can be made from there.  torch prints "errno: 97 - Address family not supported by protocol" as a
    warning and retries until its time-out.
    ## Check by hand
    `getent ahosts MASTER_ADDR` and `ip -br address` on the nodes named; `sysctl net.ipv6.conf.all.disable_ipv6`.
    ## When it is harmless
    Never, while the node cannot reach node 0.
    """
    bad: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for node, facts in contact.items():
        if facts.outcome == "family_mismatch":
            bad.setdefault((facts.master_addr, facts.addresses or (facts.address or "?",)), []).append(node)
    for (master, addresses), nodes in bad.items():
        versions = {parsed.version for a in addresses if (parsed := parse(a)) is not None}
        yield Hit(
            culprits=Culprits(nodes=tuple(nodes)),
            values={
                "master": master,
                "addresses": ", ".join(addresses),
                "nodes": world.labels(nodes),
                "family": "/".join(f"IPv{v}" for v in sorted(versions)) or "?",
            },
            evidence=tuple(
                Evidence(source="attempts to reach node 0", node_rank=n, text=contact[n].detail or "family_mismatch")
                for n in nodes[:16]
            ),
        )
