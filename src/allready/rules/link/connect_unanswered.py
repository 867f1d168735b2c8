"""LNK006."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.link_ends import silent_nodes
from allready.judging.link_paths import arrows, names
from allready.judging.registry import Rule
from allready.model import Confidence, Culprits, Evidence, FaultClass, Hit, Live, Severity
from allready.rules.link._connecting import Attempt, connecting


@Rule(
    code="LNK006",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    since="0.1",
    layer=Layer.LINK,
    title="Ranks cannot connect to each other: their first packets go unanswered",
    message="connections that ranks open (ports {ports}) are never answered: packets of node {links} are lost, while "
    "the agents of these nodes are heard; a firewall drops them",
    remedy="look for a filter of what comes to {who}: `nft list ruleset`, a security group, the switches between; open "
    "the data ports between the nodes (gloo and NCCL take ports from `sysctl net.ipv4.ip_local_port_range`); "
    "`allready check` tells all pairs and directions",
)
def connect_unanswered(live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Connections of ranks to other nodes that are still being opened after several first packets, while the agents of
    both nodes are heard; and whether those packets came to the other node (a half-open connection there): then it is
    the answer that is lost.
    ## Why it matters
    The rendezvous uses one port and works; the data uses random ports, and a firewall that drops them makes every rank
    wait for half a minute or half an hour without a word.
    ## Check by hand
    `ss -tno state syn-sent` and `ss -tno state syn-recv` on the nodes.
    ## When it is harmless
    When the other node's rank has just ended and its host answers late; the attempts then end within seconds.
    """
    silent = silent_nodes(live)
    tries = [t for t in connecting(live) if not silent & {t.src, t.dst}]
    if not tries:
        return
    links = sorted({t.lost for t in tries})
    sources, targets = {src for src, _ in links}, {dst for _, dst in links}
    one_target = len(targets) == 1 and len(sources) > 1
    one_source = len(sources) == 1 and len(targets) > 1
    guilty = targets if one_target else sources if one_source else set()
    yield Hit(
        culprits=Culprits(nodes=tuple(guilty)) if guilty else Culprits(links=tuple(links)),
        values={
            "who": names(live, targets),
            "links": arrows(links),
            "ports": ", ".join(map(str, sorted({t.row.remote_port for t in tries})[:6])),
        },
        confidence=Confidence.CERTAIN if any(t.row.backoff > 2 for t in tries) else Confidence.LIKELY,
        evidence=tuple(_told(t) for t in tries[:8]),
    )


def _told(attempt: Attempt) -> Evidence:
    row = attempt.row
    text = f"node {attempt.src} -> node {attempt.dst}: {row.backoff + 1} first packets without an answer"
    if attempt.has_come:
        text += f"; they came to node {attempt.dst}, whose answers are lost"
    return Evidence(
        source=f"socket {row.local}:{row.local_port} -> {row.remote}:{row.remote_port}",
        text=text,
        node_rank=attempt.src,
    )
