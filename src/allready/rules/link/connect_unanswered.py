"""LNK006."""

from collections.abc import Iterator

from allready.model import Confidence, Culprits, Evidence, FaultClass, Hit, Live, Severity
from allready.rules.link._paths import arrows, connecting, names, silent_nodes
from allready.rules.registry import Rule


@Rule(
    code="LNK006",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    since="0.1",
    depth=21,
    title="Ranks cannot connect to each other: their first packets go unanswered",
    message="connections that ranks open to {who} are answered by nobody (node {links}, ports {ports}): a firewall "
    "drops them; the nodes themselves do reach each other",
    remedy="open the data ports between the nodes (gloo and NCCL take ports from `sysctl "
    "net.ipv4.ip_local_port_range`), or look for the filter: `nft list ruleset` on {who}; `allready check` tells all "
    "pairs and directions",
)
def connect_unanswered(live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Connections of ranks to other nodes that are still being opened after several first packets, while the agents of
    both nodes are heard.
    ## Why it matters
    The rendezvous uses one port and works; the data uses random ports, and a firewall that drops them makes every rank
    wait for half a minute or half an hour without a word.
    ## Check by hand
    `ss -tno state syn-sent` on the nodes.
    ## When it is harmless
    When the other node's rank has just ended and its host answers late; the attempts then end within seconds.
    """
    silent = silent_nodes(live)
    tries = [t for t in connecting(live) if not silent & {t[0], t[1]}]
    if not tries:
        return
    links = sorted({(src, dst) for src, dst, _ in tries})
    sources, targets = {src for src, _ in links}, {dst for _, dst in links}
    one_target = len(targets) == 1 and len(sources) > 1
    one_source = len(sources) == 1 and len(targets) > 1
    guilty = targets if one_target else sources if one_source else set()
    yield Hit(
        culprits=Culprits(nodes=tuple(guilty)) if guilty else Culprits(links=tuple(links)),
        values={
            "who": names(live, targets),
            "links": arrows(links),
            "ports": ", ".join(map(str, sorted({row.remote_port for _, _, row in tries})[:6])),
        },
        confidence=Confidence.CERTAIN if any(row.backoff > 2 for _, _, row in tries) else Confidence.LIKELY,
        evidence=tuple(
            Evidence(
                source=f"socket {row.local}:{row.local_port} -> {row.remote}:{row.remote_port}",
                text=f"node {src} -> node {dst}: {row.backoff + 1} first packets without an answer",
                node_rank=src,
            )
            for src, dst, row in tries[:8]
        ),
    )
