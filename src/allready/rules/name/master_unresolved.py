from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.stated import Text, said
from allready.judging.values import seen
from allready.model import (
    Culprits,
    FaultClass,
    Hit,
    HostFacts,
    LaunchFacts,
    MasterContactFacts,
    NameFacts,
    PerNode,
    Phrase,
    RemedyStep,
    Severity,
)
from allready.model.fill import words_of


@Rule(
    code="NAM001",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_NAME,
    layer=Layer.NAME,
    title="MASTER_ADDR does not resolve",
    message="node {nodes} cannot resolve MASTER_ADDR {master}[[: {error}]]",
    remedy=(
        RemedyStep(
            explanation="give the address of node 0 instead of its name: --master-addr ADDRESS", where="every node"
        ),
        RemedyStep(
            explanation="or add the name to the hosts file",
            where="node {nodes}",
            command="echo 'ADDRESS {master}' | sudo tee -a /etc/hosts",
            each="on_hosts",
        ),
        RemedyStep(
            explanation="a pod's name comes from a headless Service (clusterIP: None) that selects it, with the pod's "
            "subdomain as its name; with publishNotReadyAddresses: true the name is there before the pod is ready",
            command="kubectl get service,endpoints,pods -o wide",
            each="in_pods",
        ),
        RemedyStep(
            explanation="let the Service publish pods that are not ready",
            command='kubectl patch service SERVICE -p \'{{"spec":{{"publishNotReadyAddresses":true}}}}\'',
            each="in_pods",
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
            values={
                "nodes": case.world.labels(nodes),
                "master": master,
                "error": _why(names[nodes[0]], error),
                **_where_names_come_from(case, nodes),
            },
            evidence=seen("getaddrinfo", {n: _shown(names[n], master, _why(names[n], error)) for n in nodes}),
        )


def _why(names: NameFacts, error: str) -> Text:
    """The resolver's answer; where it was asked while node 0 was called, what came of that."""
    return words_of(names, "master_error") or error


def _shown(names: NameFacts, master: str, error: Text) -> Phrase:
    """The resolver's answer, and whom it asks on that node."""
    asked = ", ".join([*names.order, *names.servers])
    return said("{name}: {error}[[ (asked: {asked})]]", name=master, error=error, asked=asked or None)


def _where_names_come_from(case: Analysis, nodes: list[int]) -> dict[str, list[dict[str, str]]]:
    """Which steps of the remedy fit: in a pod the hosts file is not the place."""
    hosts, launch = case.facts(HostFacts), case.facts(LaunchFacts)
    in_pods = any(
        (node in hosts and hosts[node].container == "kubernetes")
        or (node in launch and (launch[node].scheduler or "").startswith("kubernetes"))
        for node in nodes
    )
    return {"on_hosts": [] if in_pods else [{}], "in_pods": [{}] if in_pods else []}
