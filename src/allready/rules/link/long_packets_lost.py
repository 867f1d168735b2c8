from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.link_paths import path_sizes
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import stated
from allready.model import Confidence, FaultClass, Hit, Live, RemedyStep, Severity
from allready.rules.link._paths import broken_path, path_hit


@Rule(
    code="LNK008",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    layer=Layer.LINK,
    applies=Applies.CONNECTIONS,
    title="Large packets between nodes are dropped silently (MTU black hole)",
    message="large packets to or from {who}[[ (node {links})]] are dropped silently: IP packets of {passed} B are "
    "answered, those of {lost} B are not; the data of the ranks has been unacknowledged for {for_s} s",
    remedy=(
        RemedyStep(
            explanation="lower the MTU of the interface, as root",
            where="{who}",
            command="ip link set dev {interface} mtu {passed}",
        ),
        RemedyStep(
            explanation="or let TCP probe for the size",
            where="every node",
            command="sysctl -w net.ipv4.tcp_mtu_probing=1",
        ),
        RemedyStep(
            explanation="the cause is a link on the path with a smaller MTU, or a firewall that drops ICMP "
            '"fragmentation needed"; find where',
            where="node {node}",
            command="ping -c 3 -M do -s {ping} {address}; ip -d link",
        ),
    ),
)
def long_packets_lost(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Where data of ranks goes unacknowledged, their agents send the other host UDP datagrams of several sizes that must
    not be fragmented, to a closed port. The host's kernel refuses the small ones and never gets the large ones.
    ## Why it matters
    The rendezvous and all small messages work; the first large operation hangs, and every timeout reports a hang of the
    collective.
    ## Check by hand
    `ping -M do -s 1472 NODE` fails where `ping -M do -s 1200 NODE` works (9000: `-s 8972`).
    ## When it is harmless
    Never.
    """
    found = broken_path(case, "long")
    if found is None:
        return
    sizes = {way: size for way, size in path_sizes(live).items() if way in found.links}
    lost = min(size.lost_bytes for size in sizes.values() if size.lost_bytes is not None)
    yield path_hit(
        live,
        found,
        confidence=Confidence.CERTAIN,
        evidence=(
            stated(
                "UDP datagrams to a closed port",
                "node {a} -> node {b}: {passed} B answered, {lost} B never",
                node_rank=a,
                a=a,
                b=b,
                passed=size.passed_bytes,
                lost=size.lost_bytes,
            )
            for (a, b), size in sorted(sizes.items())[:4]
        ),
        passed=min(size.passed_bytes for size in sizes.values()),
        lost=lost,
        ping=lost - 28,
    )
