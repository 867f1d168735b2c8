from collections.abc import Iterator

from allready import model
from allready.judging.addresses import datagram_callers, endpoint, half_open_callers, job_of
from allready.judging.analysis import Analysis
from allready.judging.firewall import filter_evidence, own_drop
from allready.judging.registry import Layer, Rule
from allready.judging.stated import evidence_of, said
from allready.judging.values import MAX_EVIDENCE, seen
from allready.model.fill import words_of


@Rule(
    code="PRT007",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.START_PATH,
    layer=Layer.PATH,
    title="Packets from node 0 do not reach a node",
    message="node {nodes} does not receive what node 0 sends ({seen}): the path from node 0 is broken in that "
    "direction",
    remedy=(
        model.RemedyStep(
            explanation="find the rule that drops packets from {master}",
            where="node {nodes}",
            command="nft list ruleset; iptables -S INPUT",
        ),
        model.RemedyStep(
            explanation="if there is none, check the return path and reverse-path filtering (rp_filter 1 drops packets "
            "that arrive on another interface than the route uses)",
            where="node 0",
            command="ip route get {back}; sysctl net.ipv4.conf.all.rp_filter",
        ),
    ),
)
def one_way_master(launch: model.PerNode[model.LaunchFacts], case: Analysis) -> Iterator[model.Hit]:
    """
    ## What it checks
    Nodes whose packets arrive at node 0 and that receive none from it. Certain when a node's datagrams arrive and
    report that it never got an answer. Likely when connection attempts (SYN) arrive, our answers are never
    acknowledged, and there are exactly as many such callers as nodes without any other sign; or when the silent node's
    own packet filter drops what comes from node 0.
    ## Why it matters
    A connection needs both directions, so each side sees nothing but silence and blames the other.
    ## Check by hand
    `tcpdump -ni any host PEER` on both sides while one pings the other: one sees the request and the reply leave, the
    other sees no reply.
    ## When it is harmless
    Never, while the node is needed.
    """
    if case.world.num_nodes < 2 or not launch:
        return
    master = job_of(launch).master_addr
    named: set[int] = set()
    if case.roll is not None:
        deaf = {n: c for n, c in datagram_callers(case.roll).items() if c.hears_us is False}
        half_open, callers = half_open_callers(case.roll)
        udp = {
            c.address: said(
                "{address}: calls by UDP, receives no answer; TCP: {detail}",
                address=c.address,
                detail=words_of(c, "detail") or said("none"),
            )
            for c in deaf.values()
        }
        syn = {
            c.address: said(
                "{address}: {detail}",
                address=c.address,
                detail=words_of(c, "detail") or said("SYN received, handshake never completed"),
            )
            for c in callers
        }
        for nodes, confidence, source, texts in (
            (tuple(sorted(deaf)), model.Confidence.CERTAIN, "datagrams at node 0", udp),
            (half_open, model.Confidence.LIKELY, "half-open connections at node 0", syn),
        ):
            if nodes:
                named |= set(nodes)
                evidence = [evidence_of(source, text) for text in texts.values()]
                yield _hit(case, nodes, list(texts), master, confidence, evidence)
    firewall = case.facts(model.FirewallFacts)
    for node, facts in case.facts(model.MasterContactFacts).items():
        dropped = own_drop(firewall.get(node), facts.address)
        if node in named or facts.outcome != "silent" or dropped is None or dropped[0] != "in":
            continue
        address = endpoint(facts.address, facts.master_port)
        text = said("silent at {address}, {num} attempts", address=address, num=facts.attempts)
        evidence = [*seen("attempts to reach node 0", {node: text}), *filter_evidence(firewall.get(node), node)]
        rule = f"{case.world.label(node)}: {dropped[1].text}"
        yield _hit(case, (node,), [rule], facts.address or master, model.Confidence.LIKELY, evidence, back="ADDRESS")


def _hit(
    case: Analysis,
    nodes: tuple[int, ...],
    found: list[str],
    master: str,
    confidence: model.Confidence,
    evidence: list[model.Evidence],
    *,
    back: str | None = None,
) -> model.Hit:
    return model.Hit(
        culprits=model.Culprits(links=tuple((0, n) for n in nodes)),
        confidence=confidence,
        values={
            "nodes": case.world.labels(nodes),
            "seen": ", ".join(found[:8]),
            "master": master,
            "back": back or found[0],
        },
        evidence=tuple(evidence[:MAX_EVIDENCE]),
    )
