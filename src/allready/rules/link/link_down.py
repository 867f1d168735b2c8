"""LNK002."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.link_paths import broken, names
from allready.judging.registry import Rule
from allready.model import Confidence, Culprits, Evidence, FaultClass, Hit, Live, Severity, clock_time
from allready.rules.link._say import told


@Rule(
    code="LNK002",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.NET_BROKEN,
    since="0.1",
    layer=Layer.LINK,
    title="A network interface of a node lost its link while the job runs",
    message="{interfaces} has no link any more: nothing has passed between {who} and its peers for {for_s} s",
    remedy="check cable, transceiver and switch port of {who}: `ip -s link`, `ethtool IFNAME`, "
    "`dmesg -T | grep -i link`; the job goes on by itself only if the link comes back soon",
)
def link_down(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Whether an interface that was up with a carrier within the last half minute is so no longer, on a node whose
    connections have data that goes unacknowledged, or whose peers are all silent.  A node that is cut off so says it
    itself, on its own terminal and in its own report: node 0 cannot hear it, and of two nodes cannot know which it is.
    ## Why it matters
    The addresses stay, so nothing is refused and nothing fails: every rank waits for the network in silence.
    ## Check by hand
    `cat /sys/class/net/IFNAME/carrier` on the node, and the counters of the switch port.
    ## When it is harmless
    Never while the job needs the interface; an interface that carries none of its connections is not accused.
    """
    found = case.of(broken)
    if found is None or found.kind != "down":
        return
    yield Hit(
        culprits=Culprits(nodes=found.nodes),
        values={
            "who": names(live, found.nodes),
            "interfaces": ", ".join(found.interfaces[:8]),
            "for_s": f"{found.for_s:.1f}",
        },
        confidence=Confidence.CERTAIN,
        evidence=(
            *(Evidence(source="/sys/class/net", text=f"{name}: no carrier") for name in found.interfaces[:4]),
            *told(live, found),
        ),
        fault_time=clock_time(live.now_s - found.for_s),
    )
