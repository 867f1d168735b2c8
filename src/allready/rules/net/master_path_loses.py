from collections.abc import Iterator

from allready.judging.addresses import endpoint, job_of
from allready.judging.analysis import Analysis
from allready.judging.master_path import losing_master_paths
from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import MAX_EVIDENCE
from allready.model import Confidence, Culprits, FaultClass, Hit, LaunchFacts, PerNode, RemedyStep, Severity
from allready.model.fill import UNKNOWN
from allready.rules.net._chance import losing_links


@Rule(
    code="NET027",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.NET_BROKEN,
    layer=Layer.PATH,
    title="The path to node 0 loses so many packets that connections fail",
    message="the path between node {nodes} and node 0 ({address}) loses packets"
    "[[: {resent} of {sent} segments had to be sent again]][[; {broken} connections were made and broke]]",
    remedy=(
        RemedyStep(
            explanation="check cable, transceiver, port and the switch's counters, at both ends",
            where="node {nodes}",
            command="ip -s link; nstat -az TcpRetransSegs",
        ),
        RemedyStep(
            explanation="if this loses nothing, check there how allready ended",
            where="node {nodes}",
            command="ping -i 0.05 -c 200 {host}",
        ),
    ),
)
def master_path_loses(launch: PerNode[LaunchFacts], case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    Connections between a node and node 0 that were made and then broke, where the kernel had sent at least a fifth of
    their segments again before they arrived, or where the node is alive and gets no connection any more to the port
    over which it had joined. A connection that stands counts where it repeats as much and the test of paths failed
    with that node. Segments that never arrived do not count: a machine that is gone answers none.
    ## Why it matters
    The node looks as if it had died, or as if its port were filtered, and both are healthy.
    ## Check by hand
    `ping -i 0.05 -c 200` to node 0; `ss -tin` shows `retrans:` of a connection.
    ## When it is harmless
    Never: collectives over that path fail in the same way.
    """
    counted = {n for link in case.of(losing_links) for n in link}  # NET019 knows more
    found = {n: p for n, p in case.of(losing_master_paths).items() if p.num_broken or n not in counted}
    if not found or not launch:
        return
    nodes, job = tuple(sorted(found)), job_of(launch)
    sent, resent = sum(p.num_sent for p in found.values()), sum(p.num_resent for p in found.values())
    yield Hit(
        culprits=Culprits(links=tuple((n, 0) for n in nodes)),
        confidence=Confidence.LIKELY,
        values={
            "nodes": case.world.labels(nodes),
            "address": endpoint(job.master_addr, job.master_port),
            "host": job.master_addr,
            "resent": resent or UNKNOWN,
            "broken": sum(p.num_broken for p in found.values()) or UNKNOWN,
            "sent": sent,
        },
        evidence=tuple(
            stated(
                "connections to node 0",
                "node {node}: broken connections {broken}[[; {resent} of {sent} segments sent again]]"
                "[[; its UDP datagrams to port {port} pass]]",
                node_rank=node,
                node=node,
                broken=path.num_broken,
                resent=path.num_resent or None,
                sent=path.num_sent,
                port=job.master_port if path.calls else None,
            )
            for node, path in sorted(found.items())[:MAX_EVIDENCE]
        ),
    )
