from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.model import FaultClass, Hit, Live, RemedyStep, Severity
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
        yield path_hit(live, found, segment=min((r.send_queue_bytes // r.unacked for r in rows), default="?"))
