from collections import defaultdict
from collections.abc import Iterator

from allready import model
from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.stated import evidence_of, said, stated
from allready.judging.values import MAX_EVIDENCE
from allready.names import TOKEN_VARIABLE


@Rule(
    code="JOB013",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.ENV_MISMATCH,
    layer=Layer.LAUNCH,
    title="A node does not have the job's token",
    message="nodes {nodes} and node 0 do not have the same token (--token-file, ALLREADY_TOKEN)"
    "[[; nodes without any: {without}]]",
    remedy=(
        model.RemedyStep(
            explanation="compare the token without showing it; it must be the same on all nodes, or missing on all",
            where="every node",
            command="sha256sum FILE",
        ),
        model.RemedyStep(explanation="start these nodes again with --token-file FILE", where="node {nodes}"),
    ),
)
def token_differs(case: Analysis) -> Iterator[model.Hit]:
    """
    ## What it checks
    Nodes that came to node 0 and do not have the token that it was started with, have another one, or have one while
    node 0 has none. Node 0 reports them only while their place is free: what a stranger says of itself proves nothing,
    so that it is likely at most. With two different tokens and no other node no node is named.
    ## Why it matters
    A token shuts out who does not belong to the job. A node without it takes no part, and the others wait for it.
    ## Check by hand
    `sha256sum` of the token's file on both nodes; `printenv ALLREADY_TOKEN | sha256sum` where the variable is used.
    ## When it is harmless
    When the machine does not belong to the job: it was shut out, as it should be.
    """
    claimed: dict[model.TokenGap, dict[int, model.Evidence]] = defaultdict(dict)
    roll = case.roll
    if roll is not None:
        for caller in roll.callers:
            gap = model.TokenGap.of(caller.kind)
            if gap is not None and caller.node_rank in roll.missing:
                text = said(
                    "[[{name}, ]]{address}: {reason}", name=caller.name or None, address=caller.address, reason=gap
                )
                claimed[gap][caller.node_rank] = evidence_of("roll call on node 0", text, node_rank=caller.node_rank)
    for node, facts in case.facts(model.MasterContactFacts).items():
        gap = model.TokenGap.of(facts.detail) if facts.outcome == "rejected" else None
        if gap is not None:
            claimed[gap][node] = stated("answer of node 0", "{reason}", reason=gap, node_rank=node)
    is_told_by_node_0 = roll is not None and not roll.partial
    others = len(roll.present) > 1 if roll is not None else False
    for gap, by_node in sorted(claimed.items()):
        nodes = tuple(sorted(by_node))
        without = {model.TokenGap.MISSING: nodes, model.TokenGap.NOT_ASKED: (0,)}.get(gap, ())
        odd = without or (nodes if others else ())
        yield model.Hit(
            culprits=model.Culprits(nodes=odd) if odd else model.Culprits(variables=(TOKEN_VARIABLE,)),
            values={"nodes": case.world.labels(nodes), "without": case.world.labels(without) or None},
            confidence=model.Confidence.LIKELY if is_told_by_node_0 else model.Confidence.CERTAIN,
            evidence=tuple(by_node[n] for n in nodes)[:MAX_EVIDENCE],
        )
