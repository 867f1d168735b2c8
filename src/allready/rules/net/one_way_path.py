from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.values import on_nodes
from allready.model import FaultClass, Hit, Reachability, RemedyStep, Severity
from allready.rules.net._paths import back, datagram_evidence, judge_paths, path_evidence, path_hit, routes_to


@Rule(
    code="NET004",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    layer=Layer.PATH,
    title="Packets pass in one direction only",
    message="packets are lost in one direction only: {links}; the reverse direction works",
    remedy=(
        RemedyStep(
            explanation="find what drops packets from the sender",
            where="node {where}",
            command="nft list ruleset; iptables -S; sysctl net.ipv4.conf.all.rp_filter",
        ),
        RemedyStep(explanation="then check the path between the two", where="both nodes", command="{routes}"),
    ),
)
def one_way_path(reach: Reachability, case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    Pairs of nodes between which no TCP connection is established in either direction, while datagrams arrive in one
    direction and never in the other. The direction that drops packets is named; TCP alone cannot tell it, for it needs
    both.
    ## Why it matters
    All connections between the two hang until their timeouts, and each side blames the other.
    ## Check by hand
    `tcpdump -ni any host PEER` on both nodes while one of them runs `nc -vz -w 3 PEER 45678`: packets that leave one
    side and never show on the other were dropped on the path; those that show and get no answer, in the receiver's
    firewall.
    ## When it is harmless
    When these two nodes never communicate directly, which neither NCCL nor Gloo guarantees.
    """
    paths = case.of(judge_paths)
    if not paths.one_way:
        return
    involved = {h for hop in paths.one_way for h in (hop, back(hop))}
    yield path_hit(
        case,
        paths.one_way,
        (),
        where=on_nodes(case.world, [dst for _, dst, _ in paths.one_way]),
        routes=routes_to({p.address for p in paths.probes(paths.one_way)}),
        evidence=(*datagram_evidence(paths, involved), *path_evidence(paths.probes(involved))),
    )
