"""JOB001."""

from collections.abc import Iterator

from allready.model import Confidence, Culprits, Evidence, FaultClass, Hit, RollCall, Severity, World
from allready.rules.registry import Rule


@Rule(
    code="JOB001",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_ABSENT,
    since="0.1",
    depth=40,
    title="Nodes never reported to node 0",
    message="no word from node {nodes} after {waited_s} s: {present} of {num_nodes} nodes are here",
    remedy="start the same command with --node-rank {ranks} on the missing machine; if it is running there, "
    "its own output says why it cannot reach node 0",
)
def node_absent(roll: RollCall, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    That every node rank from 0 to nnodes - 1 has reported to node 0.
    ## Why it matters
    The job cannot start: torchrun and `init_process_group` wait 60 to 1800 seconds and then name nobody.
    ## Check by hand
    On the missing machine: is the command running (`pgrep -af allready`), and with this node rank?
    ## When it is harmless
    While the node is still being started.  Before `--wait` has passed the status is "waiting".
    """
    heard = {c.node_rank for c in roll.callers if c.node_rank is not None}
    silent = tuple(r for r in roll.missing if r not in heard)
    if not silent:
        return
    # Somebody's packets arrive without an answer getting through: then the silent node may well be running.
    unexplained = any(c.kind == "half_open" for c in roll.callers)
    yield Hit(
        culprits=Culprits(nodes=silent, ranks=tuple(r for n in world.nodes if n.node_rank in silent for r in n.ranks)),
        values={
            "nodes": world.labels(silent),
            "ranks": ",".join(map(str, silent[:8])),
            "waited_s": f"{roll.waited_s:.1f}",
            "present": len(roll.present),
            "num_nodes": roll.num_nodes,
        },
        confidence=Confidence.POSSIBLE if unexplained else Confidence.LIKELY,
        evidence=tuple(
            Evidence(source="roll call on node 0", node_rank=c.node_rank,
                     text=f"node {c.node_rank} ({c.name}, {c.address}) arrived after {c.arrival_s:.1f} s")
            for c in roll.claims[:16] if c.refused is None
        ),
    )  # fmt: skip
