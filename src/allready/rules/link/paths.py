"""Connections of a job that carry nothing: of a pair, one way, of a node, of an interface."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import stated
from allready.model import Confidence, FaultClass, Hit, Live, RemedyStep, Severity
from allready.rules.link._paths import broken_path, path_hit


@Rule(
    code="LNK003",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.NET_BROKEN,
    layer=Layer.LINK,
    applies=Applies.CONNECTIONS,
    title="The path between two nodes is broken, while both reach others",
    message="the path between {who} is broken (node {links}): nothing has been answered for {for_s} s"
    "[[; data in segments of {segment} B is unacknowledged]]",
    remedy=RemedyStep(
        explanation="check the path, the firewalls of both nodes and the switches between; if only the large ping "
        "fails, the MTU is wrong on the path",
        where="node {node}",
        command="ping -c 3 {address}; ping -c 3 -M do -s 1472 {address}; ip route get {address}; nft list ruleset",
    ),
)
def pair_broken(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Both ends of the ranks' connections: data that was sent several times and never acknowledged, between two nodes
    whose agents respond and that reach others.
    ## Why it matters
    Each node looks healthy by itself; only the pair does not work, and every rank of the job waits for it.
    ## Check by hand
    `ss -tino` on both nodes: `backoff:` above 1 on this path only; `ping` between the two and to a third.
    ## When it is harmless
    When the path recovers within seconds, as after a change of routes; the finding then clears.
    """
    found = broken_path(case, "pair")
    if found is not None:
        rows = (s.row for s in found.stuck if s.row.unacked and s.row.send_queue_bytes)
        yield path_hit(live, found, segment=min((r.send_queue_bytes // r.unacked for r in rows), default=None))


@Rule(
    code="LNK004",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.NET_BROKEN,
    layer=Layer.LINK,
    applies=Applies.CONNECTIONS,
    title="Packets get lost in one direction between two nodes",
    message="packets of node {links} are lost in that direction only: data between {who} has been unacknowledged for "
    "{for_s} s",
    remedy=RemedyStep(
        explanation="find a filter or a route that concerns one direction (node {links}), and check reverse-path "
        "filtering",
        where="{who}",
        command="nft list ruleset; ip route get {address}; sysctl net.ipv4.conf.all.rp_filter",
    ),
)
def one_way(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    How many bytes each end of a stuck connection has sent, and how many the other end has received: data that arrived
    without its acknowledgement coming back shows which direction is broken, and so does data that never arrived.
    ## Why it matters
    `ping` fails in both directions either way; without the two ends side by side the wrong node is examined.
    ## Check by hand
    `ss -tin` on both nodes: `bytes_acked` of one end against `bytes_received` of the other; `tcpdump` on both.
    ## When it is harmless
    When the path recovers within seconds; the finding then clears.
    """
    found = broken_path(case, "one way")
    if found is not None:
        yield path_hit(live, found)


@Rule(
    code="LNK001",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.NET_BROKEN,
    layer=Layer.LINK,
    applies=Applies.CONNECTIONS,
    title="A node is cut off from the others while the job runs",
    message="{who} {who:is/are} cut off from the network, or down: {who:it has/they have} acknowledged nothing that "
    "the other nodes sent for "
    "{for_s} s ({num} connections, {backoff} retransmission timeouts in a row)",
    remedy=(
        RemedyStep(
            explanation="check link, kernel log and firewall from its console, and its switch port",
            where="{who}",
            command="ip -s link; dmesg -T | grep -i -E 'link|eth|mlx5|panic'; nft list ruleset",
        ),
        RemedyStep(
            explanation="check whether it answers, and whether only large packets are lost",
            where="node {node}",
            command="ping -c 3 {address}; ping -c 3 -M do -s 1472 {address}",
        ),
    ),
)
def node_cut_off(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Both ends of the ranks' TCP connections: data that was sent several times and never acknowledged, on every path to
    one node; and whether that node's agent still sends heartbeats. Idle connections do not count.
    ## Why it matters
    A cable, a switch port or a firewall that drops packets resets nothing: TCP retries for a quarter of an hour, the
    collective's own timeout is ten minutes or more.
    ## Check by hand
    `ss -tino dst NODE` on another node: `backoff:` above 1 and `unacked:` above 0; `ping NODE`.
    ## When it is harmless
    When the node is only paused for a moment (a virtual machine that is migrated): the job continues when it answers
    again.
    """
    found = broken_path(case, "cut off")
    if found is not None:
        backoff = max((s.row.backoff for s in found.stuck), default=0)
        yield path_hit(live, found, num=len(found.stuck), backoff=backoff)


@Rule(
    code="LNK002",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.NET_BROKEN,
    layer=Layer.LINK,
    applies=Applies.CONNECTIONS | Applies.ALONE,
    title="A network interface lost its link while the job runs",
    message="{interfaces} lost its link (no carrier): no data has passed between {who} and its peers for {for_s} s",
    remedy=RemedyStep(
        explanation="check cable, transceiver and switch port; the job continues by itself only if the link comes back "
        "soon",
        where="{who}",
        command="ip -s link; dmesg -T | grep -i link",
    ),
)
def link_down(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Whether an interface that was up with a carrier within the last half minute lost it, on a node whose connections
    have unacknowledged data, or whose peers are all silent. A node that is cut off so reports it on its own terminal
    and in its own report: node 0 cannot receive it, and of two nodes cannot know which it is.
    ## Why it matters
    The addresses stay, so nothing is refused and nothing fails: every rank waits for the network in silence.
    ## Check by hand
    `cat /sys/class/net/IFNAME/carrier` on the node, and the counters of the switch port.
    ## When it is harmless
    Never while the job needs the interface; one that carries none of its connections is not reported.
    """
    found = broken_path(case, "down")
    if found is not None:
        evidence = (
            stated("/sys/class/net", "{interface}: no carrier", interface=name) for name in found.interfaces[:4]
        )
        interfaces = found.interfaces[:8]
        yield path_hit(live, found, confidence=Confidence.CERTAIN, evidence=evidence, interfaces=interfaces)
