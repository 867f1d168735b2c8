"""The node with rank 0."""

from collections.abc import Iterator

from allready import model
from allready.judging.addresses import host_is_silent, is_own, is_refused_by_filter, master_endpoint, others_joined
from allready.judging.analysis import Analysis
from allready.judging.master_path import losing_master_paths
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said, stated
from allready.judging.values import MAX_EVIDENCE, grouped, seen
from allready.model.addresses import is_misnamed, is_name
from allready.model.fill import words_of


@Rule(
    code="JOB011",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.START_ABSENT,
    layer=Layer.ABSENCE,
    title="Node 0 is absent",
    message="node 0 has not started: node {nodes} got no answer at {address} within {waited_s} s",
    remedy=(
        model.RemedyStep(explanation="start the command with --node-rank 0", where="{master}"),
        model.RemedyStep(
            explanation="if it is running there, compare its --master-port with {port}, and what the name resolves to "
            "on both sides",
            where="{master}",
            command="ss -ltnp; getent hosts {master}",
        ),
    ),
)
def master_absent(contact: model.PerNode[model.MasterContactFacts], case: Analysis) -> Iterator[model.Hit]:
    """
    ## What it checks
    What the other nodes see of node 0 while none of them gets through. Node 0 is absent when its machine does not
    respond on a subnet that this node is directly connected to (only "possible" where MASTER_ADDR is a name, see
    PRT003), or when the machine refuses the port and no allready answers on a port nearby.

    A refused port alone has two possible causes: node 0 is not started, or it listens on another port. PRT001 then
    comes first, and this finding is possible. Silence (PRT002) and a missing route (PRT003) beyond a router are
    findings of their own.
    ## Why it matters
    The store lives on node 0. Workers retry for 60 to 1800 seconds and then report a network timeout.
    ## Check by hand
    On node 0's machine: `pgrep -af allready`, `ss -ltnp`; from here: `ping MASTER_ADDR`, `ip neigh show`.
    ## When it is harmless
    While node 0 is still being started. Before `--wait` has passed the status is "waiting".
    """
    if others_joined(case.roll, contact.values()):
        return
    net = case.facts(model.NetFacts)
    found = grouped((_confidence(facts, net.get(node)), node) for node, facts in contact.items())
    confidence = max((c for c in found if c is not None), key=lambda c: c.weight, default=None)
    if confidence is None:
        return
    nodes = found[confidence]
    first = contact[nodes[0]]
    yield model.Hit(
        culprits=model.Culprits(nodes=(0,)),
        confidence=confidence,
        values={
            "nodes": case.world.labels(nodes),
            "address": master_endpoint(first),
            "waited_s": f"{max(contact[n].waited_s for n in nodes):.1f}",
            "master": first.master_addr,
            "port": first.master_port,
        },
        evidence=tuple(
            stated(
                "attempts to reach node 0",
                "{outcome}, {num} attempts[[: {detail}]]",
                node_rank=n,
                outcome=contact[n].outcome,
                num=contact[n].attempts,
                detail=words_of(contact[n], "detail") or None,
            )
            for n in nodes[:MAX_EVIDENCE]
        ),
    )


def _confidence(facts: model.MasterContactFacts, net: model.NetFacts | None) -> model.Confidence | None:
    if host_is_silent(facts, net):  # a name may be another machine here: PRT003
        return model.Confidence.POSSIBLE if is_name(facts.master_addr) else model.Confidence.LIKELY
    is_here = is_misnamed(facts.master_addr, facts.addresses) or is_own(facts, net)
    if facts.outcome != "refused" or is_refused_by_filter(facts) or is_here:
        return None
    if facts.nearby is None:
        return model.Confidence.POSSIBLE
    return None if any(service == "allready" for _, service in facts.nearby) else model.Confidence.LIKELY


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
    indistinguishable. Where node 0's machine acknowledges all along what its agent does not answer, the path works, and
    node 0 is named, as stopped. Silence counts while this node's own process runs, and for half as long again where
    node 0's kernel acknowledges what is sent to it: a machine with more work than processors is no fault.
    A node whose own agent did not run for that long accuses no node: node 0 gave it up.
    ## Why it matters
    Node 0 holds the store. Without it no rank can continue, and in a training job every other rank would print a
    network error while the cause lies in node 0's output.
    ## Check by hand
    `pgrep -af allready` on node 0, and the last lines of its output.
    ## When it is harmless
    When the command was ended on node 0 on purpose.
    """
    known_lost = {*(case.roll.lost if case.roll is not None else ()), *case.of(losing_master_paths)}
    lost = {
        r: c
        for r, c in contact.items()
        if c.outcome == "lost" and r not in known_lost and not (c.loss is not None and c.loss.pause_s is not None)
    }
    if not lost:
        return
    # Silence without a closed connection may as well be this node's own cable: then only the path is named.
    silent = all(c.loss is not None and c.loss.is_silent for c in lost.values())
    is_agent = all(c.loss is not None and c.loss.reason is model.LossReason.AGENT_SILENT for c in lost.values())
    is_path = silent and not is_agent
    links = tuple(_lost_direction(c, r) for r, c in lost.items())
    yield model.Hit(
        culprits=model.Culprits(links=links) if is_path else model.Culprits(nodes=(0,)),
        fault_class=model.FaultClass.NET_BROKEN if is_path else model.FaultClass.CPU_STUCK if is_agent else None,
        confidence=model.Confidence.POSSIBLE if is_path else model.Confidence.LIKELY,
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
