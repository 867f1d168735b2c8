from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, Hit, MasterContactFacts, NameFacts, PerNode, RemedyStep, Severity


@Rule(
    code="NAM001",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_NAME,
    layer=Layer.NAME,
    title="MASTER_ADDR does not resolve",
    message="node {nodes} cannot resolve MASTER_ADDR {master}: {error}",
    remedy=(
        RemedyStep(
            explanation="give the address of node 0 instead of its name: --master-addr ADDRESS", where="every node"
        ),
        RemedyStep(
            explanation="or add the name to the hosts file",
            where="node {nodes}",
            command="echo 'ADDRESS {master}' | sudo tee -a /etc/hosts",
        ),
    ),
)
def master_unresolved(names: PerNode[NameFacts], case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    That MASTER_ADDR resolves to at least one address on every node. A name that resolved later (a pod's name often
    takes seconds to appear in DNS) is no fault once the node got through.
    ## Why it matters
    The node retries until its timeout, 60 to 1800 s, and the resolver's error is buried in a traceback.
    ## Check by hand
    `getent ahosts MASTER_ADDR` on the named nodes, and on one where it works; `cat /etc/resolv.conf`.
    ## When it is harmless
    While DNS does not have the name yet, in the first seconds of a pod.
    """
    contact = case.facts(MasterContactFacts)
    bad: dict[tuple[str, str], list[int]] = {}
    for node, facts in names.items():
        met = contact.get(node)
        if met is not None and met.outcome != "not_tried":
            unresolved = met.outcome == "unresolved"
        else:
            unresolved = not facts.master_addresses
        if unresolved:
            error = facts.master_error or (met.detail if met is not None else "") or "?"
            bad.setdefault((facts.master_name, error), []).append(node)
    for (master, error), nodes in bad.items():
        yield Hit(
            culprits=Culprits(nodes=tuple(nodes)),
            values={"nodes": case.world.labels(nodes), "master": master, "error": error},
            evidence=seen("getaddrinfo", dict.fromkeys(nodes, f"{master}: {error}")),
        )
