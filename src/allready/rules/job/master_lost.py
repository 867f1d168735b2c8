"""JOB010."""

from collections.abc import Iterator

from allready.judging.addresses import endpoint
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import (
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    Hit,
    LossReason,
    MasterContactFacts,
    PerNode,
    RemedyStep,
    RollCall,
    Severity,
    World,
)


@Rule(
    code="JOB010",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DEAD,
    since="0.1",
    layer=Layer.PROCESS_END,
    title="Node 0 was here and is gone",
    message="node {nodes} had joined, then the connection to node 0 ({address}) broke",
    remedy=RemedyStep(
        explanation="look at the end of its output (ended by hand, killed, crashed), then start all nodes again",
        where="node 0",
        command="dmesg -T | tail -n 30; uptime",
    ),
)
def master_lost(contact: PerNode[MasterContactFacts], world: World, roll: RollCall | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    Nodes whose connection to node 0 ended before the check did, as these nodes saw it.  Where it did not end but fell
    silent, the way between them is named and not node 0: a cable, a stopped process or a lost machine look the same.
    ## Why it matters
    Node 0 holds the store.  Without it nobody can go on, and in a training job every other rank would print an error
    about the network while the cause lies in node 0's output.
    ## Check by hand
    `pgrep -af allready` on node 0, and the last lines of its output.
    ## When it is harmless
    When the command was ended on node 0 on purpose.
    """
    known_lost = set(roll.lost) if roll is not None else set()
    nodes = tuple(r for r, c in contact.items() if c.outcome == "lost" and r not in known_lost)
    if not nodes:
        return
    # Silence without an end of the connection is as well this node's own cable: then nobody is named but the way.
    losses = [loss for r in nodes if (loss := contact[r].loss) is not None]
    silent = len(losses) == len(nodes) and all(loss.is_silent for loss in losses)
    yield Hit(
        culprits=Culprits(links=tuple(_lost_way(contact[r], r) for r in nodes)) if silent else Culprits(nodes=(0,)),
        fault_class=FaultClass.NET_BROKEN if silent else None,
        confidence=Confidence.POSSIBLE if silent else Confidence.LIKELY,
        values={
            "nodes": world.labels(nodes),
            "address": endpoint(
                contact[nodes[0]].address or contact[nodes[0]].master_addr, contact[nodes[0]].master_port
            ),
        },
        evidence=tuple(
            Evidence(source="connection to node 0", node_rank=r, text=contact[r].detail or "the connection broke")
            for r in nodes[:16]
        ),
    )


def _lost_way(contact: MasterContactFacts, node: int) -> tuple[int, int]:
    """What certainly does not arrive: node 0's words here, or, where they do, ours there."""
    is_one_way = contact.loss is not None and contact.loss.reason is LossReason.ONE_WAY
    return (node, 0) if is_one_way else (0, node)
