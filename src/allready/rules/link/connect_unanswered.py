from collections.abc import Iterator

from msgspec import Struct

from allready.judging.link_ends import (
    CONNECTING,
    UNANSWERED,
    address_book,
    key,
    mirror,
    newest_sockets,
    plain,
    silent_nodes,
)
from allready.judging.link_paths import arrows, names
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import stated
from allready.model import Confidence, Culprits, Evidence, FaultClass, Hit, Live, RemedyStep, Severity, SocketRow
from allready.rules.link._paths import socket_name

HALF_OPEN = "SYN_RECV"


@Rule(
    code="LNK006",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    layer=Layer.LINK,
    applies=Applies.CONNECTIONS,
    title="Connections between ranks are never answered (SYN lost)",
    message="packets of node {links} are dropped: connections that ranks open (ports {ports}) are never answered, "
    "while the agents of these nodes respond; a firewall drops them",
    remedy=(
        RemedyStep(
            explanation="find the filter of incoming packets; check security groups and the switches between as well",
            where="{who}",
            command="nft list ruleset; iptables -S INPUT",
        ),
        RemedyStep(
            explanation="open the data ports between the nodes; Gloo and NCCL take ports from",
            where="{who}",
            command="sysctl net.ipv4.ip_local_port_range",
        ),
        RemedyStep(explanation="test all pairs and directions", where="every node", command="allready check"),
    ),
)
def connect_unanswered(live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Connections of ranks to other nodes that are still being opened after several SYN packets, while the agents of both
    nodes respond; and whether those packets reached the other node (a half-open connection there): then the answer is
    lost.
    ## Why it matters
    The rendezvous uses one port and works; the data uses random ports, and a firewall that drops them makes every rank
    wait silently for half a minute or half an hour.
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
        evidence=tuple(t.evidence() for t in tries[:8]),
    )


class Attempt(Struct, frozen=True, kw_only=True):
    """A connection of `src` to `dst` that is not established.  `has_arrived`: its SYN did, the answers did not."""

    src: int
    dst: int
    row: SocketRow
    has_arrived: bool = False

    @property
    def lost(self) -> tuple[int, int]:
        """The direction in which packets are lost."""
        return (self.dst, self.src) if self.has_arrived else (self.src, self.dst)

    def evidence(self) -> Evidence:
        """Its socket, and what became of its packets."""
        form = "node {src} -> node {dst}: {num} SYN packets without an answer"
        form += "; they reached node {dst}, whose answers are lost" if self.has_arrived else ""
        return stated(
            socket_name(self.row), form, node_rank=self.src, src=self.src, dst=self.dst, num=self.row.backoff + 1
        )


def connecting(live: Live) -> Iterator[Attempt]:
    """Connections between nodes that get no answer, neither accepted nor refused."""
    book = address_book(live)
    rows = {n: newest_sockets(live, n)[0] for n in sorted(live.statuses)}
    half_open = {key(row) for found in rows.values() for row in found if row.state == HALF_OPEN}
    for node, found in rows.items():
        for row in found:
            other = book.get(plain(row.remote))
            if row.state == CONNECTING and row.backoff >= UNANSWERED and other is not None and other != node:
                yield Attempt(src=node, dst=other, row=row, has_arrived=mirror(key(row)) in half_open)
