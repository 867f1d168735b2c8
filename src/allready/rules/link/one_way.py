from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.model import FaultClass, Hit, Live, RemedyStep, Severity
from allready.rules.link._paths import broken_path, path_hit


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
