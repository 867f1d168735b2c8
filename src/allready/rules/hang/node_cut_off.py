"""HNG003."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.hang import HangKind, blame_hang
from allready.judging.layers import Layer
from allready.judging.onset import onset
from allready.judging.registry import Applies, Rule
from allready.judging.run_signs import who
from allready.judging.waits import positions
from allready.model import (
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    Hit,
    RunEvidence,
    Severity,
    clock_time,
    ranges,
)


@Rule(
    code="HNG003",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.NET_BROKEN,
    since="0.1",
    layer=Layer.LINK,
    applies=Applies.OFFLINE,
    title="A whole node cannot be reached any more",
    message="every rank of node {nodes} ({who}) became unreachable while operation {operation} (number {seq} of "
    "group {group}) was under way; no process is known to have ended",
    remedy="look at the network of node {nodes}: ip -s link, dmesg -T | grep -i -E 'link|mlx5|eth', the switch port; "
    "then run `allready check` between the nodes before the next start",
)
def node_cut_off(case: Analysis, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    All ranks of one node, and only these, do not answer RAS or left no dump, while the ranks of other nodes did, nobody
    died, and all that is known of them shows that they had entered the same operation.
    ## Why it matters
    A cable, a port, a switch or a firewall between: TCP is silent about it for a quarter of an hour, RDMA for half a
    minute.
    ## Check by hand
    From another node: `ping NODE`, `ip neigh`, the counters of the switch port; on the node: `ip -s link`, `dmesg -T`.
    ## When it is harmless
    When that node's files were simply not collected.
    """
    found = case.of(blame_hang)
    if found.kind != HangKind.CUT_OFF or found.snapshot is None or found.wait is None:
        return
    absent = [
        Evidence(source=str(p.origin or p.source), text=f"{p.source}: rank {r}: {why}")
        for p in run.progress
        for r, why in p.absent.items()
        if r in found.ranks and p.source in {"ras", "flight recorder"}
    ]
    yield Hit(
        culprits=Culprits(nodes=found.nodes),
        values={
            "nodes": ranges(found.nodes),
            "who": who(run, found.ranks),
            "operation": found.wait.operation.name,
            "seq": found.wait.operation.seq,
            "group": found.wait.label or found.wait.group,
        },
        confidence=Confidence.LIKELY,
        evidence=(*absent[:6], *positions(found.snapshot, found.ranks))[:10],
        fault_time=clock_time(onset(run)),
    )
