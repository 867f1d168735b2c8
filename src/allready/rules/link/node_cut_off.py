"""LNK001."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.link_paths import broken, names
from allready.judging.registry import Rule
from allready.model import Confidence, Culprits, FaultClass, Hit, Live, Severity, clock_time
from allready.rules.link._say import told


@Rule(
    code="LNK001",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.NET_BROKEN,
    since="0.1",
    layer=Layer.LINK,
    title="A node is cut off from the others while the job runs",
    message="nothing that the other nodes send to {who} is acknowledged for {for_s} s ({num} connections, {backoff} "
    "time-outs in a row): it is cut off from the network, or down",
    remedy="look at {who} from its console: `ip -s link`, `dmesg -T | grep -i -E 'link|eth|mlx5|panic'`, its firewall "
    "(`nft list ruleset`), the switch port; if only long packets are lost: `ping -M do -s 1472 NODE`",
)
def node_cut_off(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Both ends of the ranks' TCP connections: data that was sent several times and never acknowledged, on every path to
    one node; and whether that node's agent is still heard.  Connections that carry nothing are not asked.
    ## Why it matters
    A cable, a switch port or a firewall that drops packets resets nothing: TCP goes on trying for a quarter of an hour,
    the collective's own time-out is ten minutes or more.
    ## Check by hand
    `ss -tino dst NODE` on another node: `backoff:` above 1 and `unacked:` above 0; `ping NODE`.
    ## When it is harmless
    When the node is only paused for a moment (a virtual machine that moves): the job goes on when it answers again.
    """
    found = case.of(broken)
    if found is None or found.kind != "cut off":
        return
    yield Hit(
        culprits=Culprits(nodes=found.nodes),
        values={
            "who": names(live, found.nodes),
            "for_s": f"{found.for_s:.1f}",
            "num": len(found.stuck),
            "backoff": max((s.row.backoff for s in found.stuck), default=0),
        },
        confidence=Confidence.CERTAIN if found.is_sure else Confidence.LIKELY,
        evidence=told(live, found),
        fault_time=clock_time(live.now_s - found.for_s),
    )
