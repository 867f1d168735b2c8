from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import stated
from allready.model import Confidence, FaultClass, Hit, Live, RemedyStep, Severity
from allready.rules.link._paths import broken_path, path_hit


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
