"""PRT007."""

from collections.abc import Iterator

from allready.judging.addresses import datagram_callers, endpoint, half_open_callers
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import (
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    FirewallFacts,
    Hit,
    LaunchFacts,
    MasterContactFacts,
    PerNode,
    RemedyStep,
    RollCall,
    Severity,
    World,
)
from allready.rules.port._filter import filter_evidence, own_drop


@Rule(
    code="PRT007",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    since="0.1",
    layer=Layer.PATH,
    title="The path from node 0 to a node is broken in one direction",
    message="what node 0 sends does not arrive at node {nodes} ({seen}): the path from node 0 is broken in that "
    "direction",
    remedy=(
        RemedyStep(
            explanation="find the rule that drops what comes from {master}",
            where="node {nodes}",
            command="nft list ruleset; iptables -S INPUT",
        ),
        RemedyStep(
            explanation="if there is none, check the way back, and reverse-path filtering (rp_filter 1 drops "
            "what comes in by another interface than the route goes out)",
            where="node 0",
            command="ip route get {back}; sysctl net.ipv4.conf.all.rp_filter",
        ),
    ),
)
def one_way_master(
    launch: PerNode[LaunchFacts],
    world: World,
    roll: RollCall | None = None,
    contact: PerNode[MasterContactFacts] | None = None,
    firewall: PerNode[FirewallFacts] | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    Nodes that node 0 hears and that do not hear node 0.  Certain when a node's datagrams arrive and say that no answer
    ever did.  Likely when a node's connection attempts (SYN) arrive, our answers are never acknowledged, and there is
    no other sign of exactly as many nodes as there are such callers; or when the silent node's own packet filter drops
    what comes from node 0.
    ## Why it matters
    A connection needs both directions, so each side sees nothing but silence and blames the other.
    ## Check by hand
    `tcpdump -ni any host PEER` on both sides while one pings the other: one sees the request and the reply leave, the
    other sees no reply.
    ## When it is harmless
    Never, while the node is needed.
    """
    if world.num_nodes < 2 or not launch:
        return
    master = (launch.get(0) or next(iter(launch.values()))).master_addr
    named: set[int] = set()
    if roll is not None:
        deaf = {n: c for n, c in datagram_callers(roll).items() if c.hears_us is False}
        if deaf:
            named |= set(deaf)
            seen = [f"{c.address}: calls by UDP, hears no answer; TCP: {c.detail or 'none'}" for c in deaf.values()]
            yield _hit(
                world,
                tuple(sorted(deaf)),
                [c.address for c in deaf.values()],
                master,
                Confidence.CERTAIN,
                [Evidence(source="datagrams at node 0", text=t) for t in seen],
            )
        nodes, callers = half_open_callers(roll)
        if nodes:
            named |= set(nodes)
            seen = [f"{c.address}: {c.detail or 'SYN received, handshake never completed'}" for c in callers]
            yield _hit(
                world,
                nodes,
                [c.address for c in callers],
                master,
                Confidence.LIKELY,
                [Evidence(source="half-open connections at node 0", text=t) for t in seen],
            )
    for node, facts in (contact or {}).items():
        own = firewall.get(node) if firewall is not None else None
        dropped = own_drop(own, facts.address)
        if node in named or facts.outcome != "silent" or dropped is None or dropped[0] != "in":
            continue
        yield _hit(
            world,
            (node,),
            [f"{world.label(node)}: {dropped[1].text}"],
            facts.address or master,
            Confidence.LIKELY,
            [
                Evidence(
                    source="attempts to reach node 0",
                    node_rank=node,
                    text=f"silent at {endpoint(facts.address, facts.master_port)}, {facts.attempts} attempts",
                ),
                *filter_evidence(own, node),
            ],
            back="ADDRESS",
        )


def _hit(
    world: World,
    nodes: tuple[int, ...],
    addresses: list[str],
    master: str,
    confidence: Confidence,
    evidence: list[Evidence],
    *,
    back: str | None = None,
) -> Hit:
    return Hit(
        culprits=Culprits(links=tuple((0, n) for n in nodes)),
        confidence=confidence,
        values={
            "nodes": world.labels(nodes),
            "seen": ", ".join(addresses[:8]),
            "master": master,
            "back": back or addresses[0],
        },
        evidence=tuple(evidence[:16]),
    )
