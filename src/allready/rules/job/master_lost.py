from collections.abc import Iterator

from allready import model
from allready.judging.addresses import master_endpoint
from allready.judging.analysis import Analysis
from allready.judging.master_path import losing_master_paths
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import seen
from allready.model.fill import words_of


@Rule(
    code="JOB010",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.DEAD,
    layer=Layer.PROCESS_END,
    knows_least=True,
    title="Lost the connection to node 0",
    message="node {nodes} lost the connection to node 0 ({address}) after joining",
    remedy=model.RemedyStep(
        explanation="check the end of its output (ended by hand, killed, crashed), then start all nodes again",
        where="node 0",
        command="dmesg -T | tail -n 30; uptime",
    ),
)
def master_lost(contact: model.PerNode[model.MasterContactFacts], case: Analysis) -> Iterator[model.Hit]:
    """
    ## What it checks
    Nodes whose connection to node 0 ended before the check did, as these nodes saw it. Where it was not closed but fell
    silent, the path between them is named and not node 0: a cable, a stopped process or a lost machine are
    indistinguishable. Silence counts while this node's own process runs, and for half as long again where node 0's
    kernel acknowledges what is sent to it: a machine with more work than processors is no fault.
    ## Why it matters
    Node 0 holds the store. Without it no rank can continue, and in a training job every other rank would print a
    network error while the cause lies in node 0's output.
    ## Check by hand
    `pgrep -af allready` on node 0, and the last lines of its output.
    ## When it is harmless
    When the command was ended on node 0 on purpose.
    """
    known_lost = {*(case.roll.lost if case.roll is not None else ()), *case.of(losing_master_paths)}
    lost = {r: c for r, c in contact.items() if c.outcome == "lost" and r not in known_lost}
    if not lost:
        return
    # Silence without a closed connection may as well be this node's own cable: then only the path is named.
    silent = all(c.loss is not None and c.loss.is_silent for c in lost.values())
    links = tuple(_lost_direction(c, r) for r, c in lost.items())
    yield model.Hit(
        culprits=model.Culprits(links=links) if silent else model.Culprits(nodes=(0,)),
        fault_class=model.FaultClass.NET_BROKEN if silent else None,
        confidence=model.Confidence.POSSIBLE if silent else model.Confidence.LIKELY,
        values={"nodes": case.world.labels(tuple(lost)), "address": master_endpoint(next(iter(lost.values())))},
        evidence=seen(
            "connection to node 0",
            {
                r: said("{loss}", loss=words_of(c, "detail") if c.loss is None else c.loss.phrase)
                for r, c in lost.items()
            },
        ),
    )


def _lost_direction(contact: model.MasterContactFacts, node: int) -> tuple[int, int]:
    """What certainly does not arrive: node 0's messages here, or, where they do, ours there."""
    is_one_way = contact.loss is not None and contact.loss.reason is model.LossReason.ONE_WAY
    return (node, 0) if is_one_way else (0, node)
