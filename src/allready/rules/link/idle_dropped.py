from collections.abc import Iterator

from allready.judging.link_ends import SURELY, stuck_ends
from allready.judging.link_idle import alive_beside, idle_before_s, is_answered, is_stale
from allready.judging.link_paths import arrows, names
from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.model import Confidence, Culprits, FaultClass, Hit, Live, RemedyStep, Severity
from allready.rules.link._paths import socket_name


@Rule(
    code="LNK005",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.NET_BROKEN,
    layer=Layer.LINK,
    title="An idle connection was dropped on the path",
    message="a firewall, NAT or load balancer between {who} dropped a connection that had been idle for at least "
    "{idle_s} s: its data is not acknowledged, while other packets between these nodes pass",
    remedy=(
        RemedyStep(
            explanation="raise the idle timeout of what stands between {who} (connection tracking, NAT, load balancer)",
            where="{who}",
            command="sysctl net.netfilter.nf_conntrack_tcp_timeout_established",
        ),
        RemedyStep(explanation="or use every path at least once a minute, for example by a small all_reduce"),
    ),
)
def idle_dropped(live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Whether a connection whose data goes unacknowledged had carried nothing for a minute or more before, while another
    connection between the same two nodes got data since, or a SYN to the other node is answered.
    ## Why it matters
    Firewalls and load balancers drop idle connections silently after 1, 5 or 60 minutes. It strikes after a long
    evaluation or checkpoint, far from its cause.
    ## Check by hand
    `ss -tino` on both nodes: `lastrcv` in minutes on the dead connection, in milliseconds on the others.
    ## When it is harmless
    Never: the data that waits will not get through.
    """
    stale = [s for s in stuck_ends(live) if is_stale(live, s)]
    if not stale:
        return
    links = {(min(s.src, s.dst), max(s.src, s.dst)) for s in stale}
    yield Hit(
        culprits=Culprits(links=tuple(sorted(links))),
        values={
            "who": names(live, {n for link in links for n in link}),
            "idle_s": f"{min(idle_before_s(s.row) or 0.0 for s in stale):.0f}",
        },
        confidence=Confidence.LIKELY if any(s.row.backoff >= SURELY for s in stale) else Confidence.POSSIBLE,
        evidence=tuple(
            stated(
                socket_name(s.row),
                "node {link}: {timeouts} retransmission timeouts, last data from there {seconds} s ago; "
                "{others} other connections of this path work"
                + (", and a SYN is answered" if is_answered(live, s) else ""),
                node_rank=s.src,
                link=arrows([(s.src, s.dst)]),
                timeouts=s.row.backoff,
                seconds=f"{s.row.last_received_s or 0.0:.0f}",
                others=len(alive_beside(live, s)),
            )
            for s in stale[:8]
        ),
    )
