from collections.abc import Iterator

from allready import model
from allready.judging.analysis import Analysis
from allready.judging.master_path import losing_master_paths
from allready.judging.rank_traffic import cut_nodes
from allready.judging.registry import Layer, Rule
from allready.judging.values import grouped, listed
from allready.rules.job._claims import evidence


@Rule(
    code="JOB009",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.DEAD,
    layer=Layer.PROCESS_END,
    title="A node disconnected",
    message="node {nodes} disconnected from node 0 after it had joined ({why})",
    remedy=model.RemedyStep(
        explanation="check the end of its output and the kernel log (ended by hand, killed, out of memory, machine "
        "rebooted), then start it again",
        where="node {nodes}",
        command="dmesg -T | tail -n 30; uptime",
    ),
)
def node_lost(roll: model.RollCall, case: Analysis) -> Iterator[model.Hit]:
    """
    ## What it checks
    Nodes that had joined and whose connection to node 0 ended before the check did. Where the node itself is alive and
    reports that it lost node 0, the path between the two is named and not the node; where the connections of the ranks
    show a broken path to a node that fell silent, that path is named by the findings about links. Where packets to and
    from a node are lost until its connection breaks, that path is named by NET027.
    ## Why it matters
    The process has ended, was killed, or its machine is down; the others would wait for it.
    ## Check by hand
    `pgrep -af allready` on that machine; `dmesg -T | grep -i -E 'killed process|oom'`; `uptime`. A node that fell
    silent without closing its connection may be stopped, its machine may be down, or the network: then the class is
    NET-BROKEN and only possible.
    ## When it is harmless
    When the command was ended there on purpose.
    """
    contact = case.facts(model.MasterContactFacts)
    alive = tuple(r for r in roll.lost if (c := contact.get(r)) is not None and c.outcome == "lost")
    cut = case.of(_cut_nodes) & set(roll.lost_silently)  # the broken path itself is named
    apart = cut | case.of(losing_master_paths).keys()
    alive = tuple(r for r in alive if r not in apart)
    gone = tuple(r for r in roll.lost if r not in alive and r not in apart)
    for nodes, broken in ((gone, False), (alive, True)):
        silent = set(nodes) <= set(roll.lost_silently)
        if nodes:
            yield model.Hit(
                culprits=model.Culprits(links=tuple((r, 0) for r in nodes)) if broken else model.Culprits(nodes=nodes),
                fault_class=model.FaultClass.NET_BROKEN if broken or silent else None,
                confidence=model.Confidence.POSSIBLE if silent and not broken else model.Confidence.LIKELY,
                values={"nodes": case.world.labels(nodes), "why": _why(roll, nodes)},
                evidence=evidence(c for c in roll.claims if c.node_rank in nodes and c.refused is None),
            )


def _cut_nodes(case: Analysis) -> frozenset[int]:
    return cut_nodes(case.collectives)


def _why(roll: model.RollCall, nodes: tuple[int, ...]) -> str:
    """What ended the connections of these nodes, as node 0 saw it; "-" when it is not known."""
    known = dict(zip(roll.lost, roll.lost_why, strict=False))
    reasons = grouped((known[node], node) for node in nodes if node in known)
    if len(reasons) == 1:
        return next(iter(reasons))
    return listed([f"{model.ranges(found)}: {why}" for why, found in reasons.items()], 4, "; ") or "-"
