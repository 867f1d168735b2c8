from collections.abc import Iterator

from allready.judging.addresses import hosts_lines
from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import grouped, seen
from allready.model import Culprits, FaultClass, Hit, MasterContactFacts, NameFacts, PerNode, RemedyStep, Severity
from allready.model.addresses import parse
from allready.model.fill import words_of


@Rule(
    code="NAM004",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_NAME,
    layer=Layer.NAME,
    title="A node lacks the address family of MASTER_ADDR",
    message="node {nodes} has no [[{family}|address of that family]], and MASTER_ADDR {master} has no other address"
    "[[: it resolves to {addresses}]]",
    remedy=(
        RemedyStep(
            explanation="give an address of node 0 of a family that all nodes have (--master-addr ADDRESS); its "
            "addresses are",
            where="node 0",
            command="ip -br address",
        ),
        RemedyStep(
            explanation="or enable [[{family}|that family]]",
            where="node {nodes}",
            command="sysctl net.ipv6.conf.all.disable_ipv6; ip -br address",
        ),
    ),
)
def family_mismatch(contact: PerNode[MasterContactFacts], case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    Whether every address of MASTER_ADDR is IPv6 on a node that has only IPv4, or the reverse.
    ## Why it matters
    No connection can be made from there. torch prints "errno: 97 - Address family not supported by protocol" as a
    warning and retries until its timeout.
    ## Check by hand
    `getent ahosts MASTER_ADDR` and `ip -br address` on the named nodes; `sysctl net.ipv6.conf.all.disable_ipv6`.
    ## When it is harmless
    Never, while the node cannot reach node 0.
    """
    bad = grouped(
        ((facts.master_addr, facts.addresses or tuple(filter(None, [facts.address]))), node)
        for node, facts in contact.items()
        if facts.outcome == "family_mismatch"
    )
    for (master, addresses), nodes in bad.items():
        names = case.facts(NameFacts)
        lines = {n: hosts_lines(names[n].master_lines, addresses) if n in names else None for n in nodes}
        versions = {parsed.version for a in addresses if (parsed := parse(a)) is not None}
        yield Hit(
            culprits=Culprits(nodes=nodes),
            values={
                "master": master,
                "addresses": ", ".join(addresses) or None,
                "nodes": case.world.labels(nodes),
                "family": "/".join(f"IPv{v}" for v in sorted(versions)) or None,
            },
            evidence=seen(
                "attempts to reach node 0",
                {
                    n: said(
                        "{detail}[[ (/etc/hosts line {lines})]]",
                        detail=words_of(contact[n], "detail") or "family_mismatch",
                        lines=lines[n],
                    )
                    for n in nodes
                },
            ),
        )
