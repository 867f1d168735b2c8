"""LNK004."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.link_paths import arrows, broken, names
from allready.judging.registry import Rule
from allready.model import Confidence, Culprits, FaultClass, Hit, Live, Severity, clock_time
from allready.rules.link._say import told


@Rule(
    code="LNK004",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.NET_BROKEN,
    since="0.1",
    layer=Layer.LINK,
    title="Packets get lost in one direction between two nodes",
    message="packets of node {links} are lost: {who} do not acknowledge each other's data for {for_s} s, and what went "
    "the other way did arrive or was not sent",
    remedy="look for a filter or a route that concerns one direction (node {links}): `nft list ruleset` and "
    "`ip route get ADDRESS` on both nodes, reverse-path filtering (`sysctl net.ipv4.conf.all.rp_filter`)",
)
def one_way(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    How many bytes each end of a stuck connection has sent, and how many the other end has received: data that arrived
    without its acknowledgement coming back shows which direction is broken, and so does data that never arrived.
    ## Why it matters
    `ping` fails in both directions either way; without the two ends side by side the wrong node is searched.
    ## Check by hand
    `ss -tin` on both nodes: `bytes_acked` of one end against `bytes_received` of the other; `tcpdump` on both.
    ## When it is harmless
    When the path comes back within seconds; the finding then goes away.
    """
    found = case.of(broken)
    if found is None or found.kind != "one way":
        return
    yield Hit(
        culprits=Culprits(links=found.links),
        values={
            "who": names(live, {n for link in found.links for n in link}),
            "links": arrows(found.links),
            "for_s": f"{found.for_s:.1f}",
        },
        confidence=Confidence.CERTAIN if found.is_sure else Confidence.LIKELY,
        evidence=told(live, found),
        fault_time=clock_time(live.now_s - found.for_s),
    )
