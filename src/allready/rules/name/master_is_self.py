from collections.abc import Iterator

from allready import model
from allready.judging.addresses import is_own, reached
from allready.judging.analysis import Analysis
from allready.judging.names import hosts_lines
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import seen


@Rule(
    code="NAM006",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.START_NAME,
    layer=Layer.NAME,
    title="A node other than node 0 has MASTER_ADDR itself",
    message="node {node} has MASTER_ADDR {master}[[ ({address})]] itself, and is not node 0",
    remedy=(
        model.RemedyStep(explanation="give the address of node 0: --master-addr ADDRESS", where="node {node}"),
        model.RemedyStep(
            explanation="or, if this machine should be node 0, start it with --node-rank 0", where="node {node}"
        ),
    ),
)
def master_is_self(
    contact: model.PerNode[model.MasterContactFacts], net: model.PerNode[model.NetFacts], case: Analysis
) -> Iterator[model.Hit]:
    """
    ## What it checks
    Whether the address that a node tries for node 0 belongs to one of its own interfaces, while it has not got through.
    ## Why it matters
    The node waits for itself. Either it has the wrong node rank, or each node was given its own address as MASTER_ADDR,
    for example by `--master-addr $(hostname)` in a script that runs everywhere.
    ## Check by hand
    `ip -br address` on the named node, and `getent ahosts MASTER_ADDR`.
    ## When it is harmless
    When several nodes of the job share one machine and node 0 is not started yet.
    """
    for node, facts in contact.items() if case.world.num_nodes > 1 else ():
        if node == 0 or reached(facts) or not is_own(facts, net[node]):
            continue
        holder = facts.local_holder
        names = case.facts(model.NameFacts).get(node)
        text = said(
            "{outcome} at {address}[[ (/etc/hosts line {lines})]]: {detail}[[; listens here: pid {holder}]]",
            outcome=facts.outcome,
            address=f"{facts.address}:{facts.master_port}",
            lines=hosts_lines(names.master_lines, (facts.address or "",)) if names is not None else None,
            detail=facts.detail,
            holder=f"{holder.pid} {holder.command}" if holder is not None else None,
        )
        yield model.Hit(
            culprits=model.Culprits(nodes=(node,)),
            confidence=model.Confidence.LIKELY,
            values={"node": case.world.label(node), "master": facts.master_addr, "address": facts.address or "?"},
            evidence=seen("attempts to reach node 0", {node: text}),
        )
