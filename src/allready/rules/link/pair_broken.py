"""LNK003."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.link_paths import arrows, broken, names
from allready.judging.registry import Rule
from allready.model import Confidence, Culprits, FaultClass, Hit, Live, Severity, clock_time
from allready.rules.link._say import segment_bytes, told


@Rule(
    code="LNK003",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.NET_BROKEN,
    since="0.1",
    layer=Layer.LINK,
    title="Two nodes do not get each other's data any more, while others do",
    message="the path between {who} is broken (node {links}): data in segments of {segment} B is unacknowledged for "
    "{for_s} s",
    remedy="between {who}: `ping NODE`, `ip route get ADDRESS`, `nft list ruleset` on both, the switches between; if "
    "only long packets are lost (`ping -M do -s 1472 NODE` fails, `ping NODE` works) the MTU is wrong on the way",
)
def pair_broken(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Both ends of the ranks' connections: data that was sent several times and never acknowledged, between two nodes that
    are both heard by the agents and reach others.
    ## Why it matters
    Each node looks healthy by itself; only the pair does not work, and every rank of the job waits for it.
    ## Check by hand
    `ss -tino` on both nodes: `backoff:` above 1 on this path only; `ping` between the two and to a third.
    ## When it is harmless
    When the path comes back within seconds, as after a change of routes; the finding then goes away.
    """
    found = case.of(broken)
    if found is None or found.kind != "pair":
        return
    yield Hit(
        culprits=Culprits(links=found.links),
        values={
            "who": names(live, {n for link in found.links for n in link}),
            "links": arrows(found.links),
            "segment": segment_bytes(found.stuck),
            "for_s": f"{found.for_s:.1f}",
        },
        confidence=Confidence.CERTAIN if found.is_sure else Confidence.LIKELY,
        evidence=told(live, found),
        fault_time=clock_time(live.now_s - found.for_s),
    )
