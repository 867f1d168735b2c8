"""JOB001."""

from collections.abc import Iterator

from allready.judging.addresses import datagram_callers, drops_port, half_open_callers
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import (
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    FirewallFacts,
    Hit,
    MasterPortFacts,
    NetFacts,
    PerNode,
    RemedyStep,
    RollCall,
    Severity,
    World,
    ranges,
)
from allready.rules.job._claims import party
from allready.rules.port._filter import locked_out

CUT_SHORT_S = 10.0
"""A clash ends the roll call at once: before this, whoever is not here has not had the time to come."""


@Rule(
    code="JOB001",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_ABSENT,
    since="0.1",
    layer=Layer.ABSENCE,
    title="Nodes never reported to node 0",
    message="no word from node {nodes} after {waited_s} s: {present} of {num_nodes} nodes are here",
    remedy=(
        RemedyStep(
            explanation="start the same command with --node-rank {ranks}; if it is running there, its own "
            "output says why it cannot reach node 0",
            where="node {nodes}",
        ),
        RemedyStep(
            explanation="see whether it is running",
            where="node {nodes}",
            command="pgrep -af allready",
        ),
    ),
)
def node_absent(
    roll: RollCall,
    world: World,
    master_port: PerNode[MasterPortFacts] | None = None,
    firewall: PerNode[FirewallFacts] | None = None,
    net: PerNode[NetFacts] | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    That every node rank from 0 to nnodes - 1 has reported to node 0.  Only nodes of which there is no sign at all
    are named: not one whose datagrams or connection attempts arrive, not one that was refused, and nobody while node 0
    cannot be reached by its own fault (its port is taken, or its own packet filter drops the port or them) or when
    a clash of other nodes has ended the roll call within seconds.
    ## Why it matters
    The job cannot start: torchrun and `init_process_group` wait 60 to 1800 seconds and then name nobody.
    ## Check by hand
    On the missing machine: is the command running (`pgrep -af allready`), and with this node rank?
    ## When it is harmless
    While the node is still being started.  Before `--wait` has passed the status is "waiting".
    """
    node_0 = master_port.get(0) if master_port is not None else None
    alone = roll.present in {(), (0,)}
    if roll.partial or (node_0 is not None and not node_0.opened):
        return
    if node_0 is not None and alone and firewall is not None and drops_port(firewall.get(0), node_0.port):
        return
    half_open, unexplained = half_open_callers(roll)
    shut = locked_out(roll, firewall.get(0) if firewall is not None else None, net.get(0) if net is not None else None)
    heard = {*datagram_callers(roll), *half_open, *shut, *(c.node_rank for c in roll.claims)}
    silent = tuple(r for r in roll.missing if r not in heard)
    # A machine that was refused because its number is wrong is likely to be the one that is missed.
    here = {(c.name, c.address) for c in roll.claims if c.refused is None}
    misnumbered = {
        (c.name, c.address)
        for c in roll.claims
        if c.refused in {"duplicate_rank", "out_of_range"}
        or (c.refused == "num_nodes_differs" and not 0 <= c.node_rank < roll.num_nodes)
    } - here
    if not silent or len(misnumbered) >= len(silent):
        return
    clash = any(c.refused in {"duplicate_rank", "num_nodes_differs", "out_of_range"} for c in roll.claims)
    if clash and roll.waited_s < CUT_SHORT_S:
        return
    yield Hit(
        culprits=Culprits(nodes=silent, ranks=_ranks(roll, world, silent)),
        values={
            "nodes": world.labels(silent),
            "ranks": ranges(silent),
            "waited_s": f"{roll.waited_s:.1f}",
            "present": len(roll.present),
            "num_nodes": roll.num_nodes,
        },
        # Somebody's packets arrive without an answer getting through: then the silent node may well be running.
        confidence=Confidence.POSSIBLE if unexplained or misnumbered else Confidence.LIKELY,
        evidence=tuple(
            Evidence(
                source="roll call on node 0",
                node_rank=c.node_rank,
                text=f"node {c.node_rank} ({party(c)}) arrived after {c.arrival_s:.1f} s",
            )
            for c in [c for c in roll.claims if c.refused is None][:16]
        ),
    )


def _ranks(roll: RollCall, world: World, nodes: tuple[int, ...]) -> tuple[int, ...]:
    """Ranks of nodes: as `world` has them, else by the one nproc that all present nodes have."""
    known = {n.node_rank: n.ranks for n in world.nodes if n.ranks}
    sizes = {c.nproc_per_node for c in roll.claims if c.refused is None}
    nproc = sizes.pop() if len(sizes) == 1 else 0
    return tuple(r for n in nodes for r in known.get(n, tuple(range(n * nproc, (n + 1) * nproc))))
