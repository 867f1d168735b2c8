"""JOB009."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    Hit,
    MasterContactFacts,
    PerNode,
    RemedyStep,
    RollCall,
    Severity,
    World,
    ranges,
)
from allready.rules.job._claims import evidence


@Rule(
    code="JOB009",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DEAD,
    since="0.1",
    layer=Layer.PROCESS_END,
    title="A node was here and is gone",
    message="node {nodes} had reported, then the connection to node 0 broke ({why})",
    remedy=RemedyStep(
        explanation="look at the end of its output and at the kernel log (ended by hand, killed, out of "
        "memory, machine rebooted), then start it again",
        where="node {nodes}",
        command="dmesg -T | tail -n 30; uptime",
    ),
)
def node_lost(roll: RollCall, world: World, contact: PerNode[MasterContactFacts] | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    Nodes that were in the roll and whose connection to node 0 ended before the check did.  Where the node itself is
    alive and says that it lost node 0, the path between the two is named and not the node.
    ## Why it matters
    The process has ended, was killed, or its machine is gone; the others would wait for it.
    ## Check by hand
    `pgrep -af allready` on that machine; `dmesg -T | grep -i -E 'killed process|oom'`; `uptime`.
    A node that fell silent without closing its connection may be stopped, its machine may be gone, or the network:
    then the class is NET-BROKEN and only possible.
    ## When it is harmless
    When somebody ended the command there on purpose.
    """
    alive = tuple(
        r for r in roll.lost if contact is not None and (c := contact.get(r)) is not None and c.outcome == "lost"
    )
    gone = tuple(r for r in roll.lost if r not in alive)
    for nodes, broken in ((gone, False), (alive, True)):
        silent = bool(nodes) and set(nodes) <= set(roll.lost_silently)
        if nodes:
            yield Hit(
                culprits=Culprits(links=tuple((r, 0) for r in nodes)) if broken else Culprits(nodes=nodes),
                fault_class=FaultClass.NET_BROKEN if broken or silent else None,
                confidence=Confidence.POSSIBLE if silent and not broken else Confidence.LIKELY,
                values={"nodes": world.labels(nodes), "why": _why(roll, nodes)},
                evidence=evidence(c for c in roll.claims if c.node_rank in nodes and c.refused is None),
            )


def _why(roll: RollCall, nodes: tuple[int, ...]) -> str:
    """What ended the connections of these nodes, as node 0 met it; "-" when it is not known."""
    known = dict(zip(roll.lost, roll.lost_why, strict=False))
    said: dict[str, list[int]] = {}
    for node in nodes:
        if node in known:
            said.setdefault(known[node], []).append(node)
    if len(said) == 1:
        return next(iter(said))
    shown = [f"{ranges(found)}: {why}" for why, found in list(said.items())[:4]]
    return "; ".join(shown) + ("; ..." if len(said) > 4 else "") or "-"
