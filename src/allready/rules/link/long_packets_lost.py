"""LNK008."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.link_paths import arrows, broken, names, path_sizes
from allready.judging.registry import Rule
from allready.model import Confidence, Culprits, Evidence, FaultClass, Hit, Live, Severity, clock_time
from allready.rules.link._say import told


@Rule(
    code="LNK008",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    since="0.1",
    layer=Layer.LINK,
    title="Short packets pass between nodes, long ones vanish",
    message="on the way to or from {who} (node {links}) IP packets of {passed} B are answered and those of {lost} B "
    "vanish without a word: the data of the ranks is unacknowledged for {for_s} s",
    remedy="as root on {who}: `ip link set dev IFNAME mtu {passed}`, or `sysctl -w net.ipv4.tcp_mtu_probing=1` on all "
    'nodes; the cause is a link on the way with a smaller MTU, or a filter that drops ICMP "fragmentation needed": '
    "`ping -M do -s {ping} NODE` and `ip -d link` show where",
)
def long_packets_lost(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Where data of ranks goes unacknowledged, their agents send the other host UDP datagrams of several sizes that must
    not be cut up, to a port at which nobody listens.  The host's kernel refuses the short ones and never gets the long
    ones.
    ## Why it matters
    The rendezvous and all small messages work; the first big operation stops for ever, and every time-out calls it a
    hang of the collective.
    ## Check by hand
    `ping -M do -s 1472 NODE` fails where `ping -M do -s 1200 NODE` works (9000: `-s 8972`).
    ## When it is harmless
    Never.
    """
    found = case.of(broken)
    if found is None or found.kind != "long":
        return
    sizes = {way: size for way, size in path_sizes(live).items() if way in found.links}
    passed = min(size.passed_bytes for size in sizes.values())
    lost = [size.lost_bytes for size in sizes.values() if size.lost_bytes is not None]
    yield Hit(
        culprits=Culprits(nodes=found.nodes) if found.nodes else Culprits(links=found.links),
        values={
            "who": names(live, found.nodes or {n for link in found.links for n in link}),
            "links": arrows(found.links),
            "passed": passed,
            "lost": min(lost),
            "ping": min(lost) - 28,
            "for_s": f"{found.for_s:.1f}",
        },
        confidence=Confidence.CERTAIN,
        evidence=(
            *(
                Evidence(
                    source="UDP datagrams to a closed port",
                    text=f"node {a} -> node {b}: {size.passed_bytes} B answered, {size.lost_bytes} B never",
                    node_rank=a,
                )
                for (a, b), size in sorted(sizes.items())[:4]
            ),
            *told(live, found),
        ),
        fault_time=clock_time(live.now_s - found.for_s),
    )
