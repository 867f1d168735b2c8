"""NET004."""

import shlex
from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.judging.values import on_nodes
from allready.model import Confidence, Culprits, FaultClass, Hit, Reachability, RemedyStep, RollCall, Severity, World
from allready.rules.net._paths import (
    MAX_LINKS,
    arrows,
    datagram_evidence,
    judge_paths,
    links_of,
    path_evidence,
)


@Rule(
    code="NET004",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    since="0.1",
    layer=Layer.PATH,
    title="Packets pass in one direction only",
    message="packets are lost in one direction only: {links}; the reverse direction carries them",
    remedy=(
        RemedyStep(
            explanation="find what drops packets from the sender",
            where="node {where}",
            command="nft list ruleset; iptables -S; sysctl net.ipv4.conf.all.rp_filter",
        ),
        RemedyStep(
            explanation="then check the way between the two",
            where="both nodes",
            command="{routes}",
        ),
    ),
)
def one_way_path(reach: Reachability, world: World, roll: RollCall | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    Pairs of nodes between which no TCP connection comes up in either direction, while datagrams arrive in one
    direction and never in the other. TCP alone cannot tell: it needs both directions, so one that swallows packets
    makes connections of both sides fail. The direction named is the one that swallows.
    ## Why it matters
    All connections between the two hang until their time-outs, and both sides blame each other.
    ## Check by hand
    `tcpdump -ni any host PEER` on both nodes while one of them runs `nc -vz -w 3 PEER 45678`: packets that leave one
    side and never show on the other were dropped on the way; those that show and get no answer, in the receiver's
    filter.
    ## When it is harmless
    When these two nodes never talk to each other directly, which neither NCCL nor Gloo promises.
    """
    judged = judge_paths(reach, roll)
    links = links_of(judged.one_way)
    if not links:
        return
    involved = {h for src, dst, plane in judged.one_way for h in ((src, dst, plane), (dst, src, plane))}
    targets = {p.address for hop in judged.one_way for p in judged.data.get(hop, ())}
    yield Hit(
        culprits=Culprits(links=links[:MAX_LINKS]),
        confidence=Confidence.CERTAIN if judged.one_way <= judged.certain else Confidence.LIKELY,
        values={
            "links": arrows(links, world),
            "where": on_nodes(world, [dst for _, dst in links]),
            "routes": "; ".join(f"ip route get {shlex.quote(address)}" for address in sorted(targets)[:2])
            or "ip route get ADDRESS",
        },
        evidence=(
            *datagram_evidence(judged.datagrams[h] for h in sorted(involved) if h in judged.datagrams),
            *path_evidence(p for h in sorted(involved) for p in judged.data.get(h, ())),
        ),
    )
