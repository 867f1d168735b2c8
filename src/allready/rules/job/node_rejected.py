from collections.abc import Iterator

from allready import model
from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import seen
from allready.rules.job._claims import HANDLED, current, evidence


@Rule(
    code="JOB008",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.ENV_MISMATCH,
    layer=Layer.LAUNCH,
    title="Node 0 refused a node",
    message="node 0 refused node {node}: {reason}",
    remedy=model.RemedyStep(
        explanation="compare the command and the version with those of node 0, then start it again",
        where="node {node}",
        command="allready --version",
    ),
)
def node_rejected(launch: model.PerNode[model.LaunchFacts], case: Analysis) -> Iterator[model.Hit]:
    """
    ## What it checks
    Refusals at the roll call that no other rule explains: above all, a node that runs another version of allready. A
    refusal for a duplicate rank, another nnodes or another job id has a finding of its own.
    ## Why it matters
    The node takes no part in the check, so nothing is known of it; and a node with another installation of the tool
    often has another installation of everything.
    ## Check by hand
    `allready --version` on both machines.
    ## When it is harmless
    When the node should not be a member of this job.
    """
    refused: dict[int, tuple[str, tuple[model.Evidence, ...]]] = {}
    claims = case.roll.claims if case.roll is not None else ()
    explained = {c.node_rank for c in claims if c.refused in HANDLED}
    for claim in current(claims):
        if claim.refused is not None and claim.refused not in HANDLED:
            refused[claim.node_rank] = (claim.refused, evidence([claim]))
    for node, facts in case.facts(model.MasterContactFacts).items():
        is_own = facts.outcome == "rejected" and model.TokenGap.of(facts.detail) is None
        if is_own and node in launch and node not in explained:
            answer = seen("answer of node 0", {node: facts.detail or said("refused")})
            refused.setdefault(node, (facts.detail or "?", answer))
    for node, (reason, answers) in sorted(refused.items()):
        values = {"node": case.world.label(node), "reason": reason}
        yield model.Hit(culprits=model.Culprits(nodes=(node,)), values=values, evidence=answers)
