"""JOB008."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import (
    Culprits,
    Evidence,
    FaultClass,
    Hit,
    LaunchFacts,
    MasterContactFacts,
    PerNode,
    RemedyStep,
    RollCall,
    Severity,
    World,
)
from allready.rules.job._claims import HANDLED, current, evidence


@Rule(
    code="JOB008",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.LAUNCH,
    title="Node 0 refused a node",
    message="node 0 refused node {node}: {reason}",
    remedy=RemedyStep(
        explanation="compare the command and the version with those of node 0, then start it again",
        where="node {node}",
        command="allready --version",
    ),
)
def node_rejected(
    launch: PerNode[LaunchFacts],
    world: World,
    roll: RollCall | None = None,
    contact: PerNode[MasterContactFacts] | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    Refusals at the roll call that no other rule explains: above all, a node that runs another version of allready.
    A refusal for a duplicate rank, another nnodes or another job id has a finding of its own.
    ## Why it matters
    The node takes no part in the check, so nothing can be said about it; and a node with another installation of the
    tool often has another installation of everything.
    ## Check by hand
    `allready --version` on both machines.
    ## When it is harmless
    When the node is not meant to be a member of this job.
    """
    said: dict[int, tuple[str, tuple[Evidence, ...]]] = {}
    claims = roll.claims if roll is not None else ()
    explained = {c.node_rank for c in claims if c.refused in HANDLED}
    for claim in current(claims):
        if claim.refused is not None and claim.refused not in HANDLED:
            said[claim.node_rank] = (claim.refused, evidence([claim]))
    for node, facts in (contact or {}).items():
        if facts.outcome == "rejected" and node in launch and node not in explained:
            seen = Evidence(source="answer of node 0", node_rank=node, text=facts.detail or "refused")
            said.setdefault(node, (facts.detail or "?", (seen,)))
    for node, (reason, seen_at) in sorted(said.items()):
        yield Hit(
            culprits=Culprits(nodes=(node,)), values={"node": world.label(node), "reason": reason}, evidence=seen_at
        )
