from collections.abc import Iterator

from allready import model
from allready.judging.addresses import drops_port, half_open_callers, unseen_nodes
from allready.judging.analysis import Analysis
from allready.judging.firewall import locked_out
from allready.judging.registry import Layer, Rule
from allready.judging.values import MAX_EVIDENCE
from allready.rules.job._claims import arrived

CUT_SHORT_S = 10.0
"""A conflict ends the roll call at once: before this, a missing node has not had the time to come."""


@Rule(
    code="JOB001",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.START_ABSENT,
    layer=Layer.ABSENCE,
    title="Nodes never reported to node 0",
    message="node {nodes} did not report within {waited_s} s: {present} of {num_nodes} nodes are here",
    remedy=(
        model.RemedyStep(
            explanation="start the same command with --node-rank {ranks}; if it is running there, its own output tells "
            "why it cannot reach node 0",
            where="node {nodes}",
            each="by_hand",
        ),
        model.RemedyStep(
            explanation="a {scheduler} script runs on the first node only; start the command on all nodes: put this "
            "before it",
            where="job script",
            command="{start}",
            each="on_all",
        ),
        model.RemedyStep(
            explanation="{scheduler} starts it there: its output for that task tells whether it ended, or cannot reach "
            "node 0",
            where="node {nodes}",
            each="by_launcher",
        ),
        model.RemedyStep(
            explanation="see whether the pod of this node is scheduled and its image is there",
            command="kubectl get pods -o wide; kubectl get events --sort-by=.lastTimestamp",
            each="in_pods",
        ),
        model.RemedyStep(explanation="check whether it is running", where="node {nodes}", command="pgrep -af allready"),
    ),
)
def node_absent(roll: model.RollCall, case: Analysis) -> Iterator[model.Hit]:
    """
    ## What it checks
    That every node rank from 0 to nnodes - 1 has reported to node 0. Only nodes without any sign are named: not one
    whose datagrams or connection attempts arrive, not one that was refused, and none while node 0 itself cannot be
    reached (its port is taken, or its own packet filter drops the port or them) or when a conflict of other nodes has
    ended the roll call within seconds.
    ## Why it matters
    The job cannot start: torchrun and `init_process_group` wait 60 to 1800 seconds and then name no node.
    ## Check by hand
    On the missing machine: is the command running (`pgrep -af allready`), and with this node rank?
    ## When it is harmless
    While the node is still being started. Before `--wait` has passed the status is "waiting".
    """
    firewall, node_0 = case.facts(model.FirewallFacts).get(0), case.facts(model.MasterPortFacts).get(0)
    alone = roll.present in {(), (0,)}
    if roll.partial or (node_0 is not None and (not node_0.opened or (alone and drops_port(firewall, node_0.port)))):
        return
    half_open, unexplained = half_open_callers(roll)
    explained = {*half_open, *locked_out(roll, firewall, case.facts(model.NetFacts).get(0))}
    silent = tuple(r for r in unseen_nodes(roll) if r not in explained)
    # A machine that was refused because its number is wrong is likely to be the one that is missing.
    here = {(c.name, c.address) for c in roll.claims if c.refused is None}
    misnumbered = {
        (c.name, c.address)
        for c in roll.claims
        if c.refused in {"duplicate_rank", "out_of_range"}
        or (c.refused == "num_nodes_differs" and not 0 <= c.node_rank < roll.num_nodes)
    } - here
    if len(misnumbered) >= len(silent):
        return
    conflict = any(c.refused in {"duplicate_rank", "num_nodes_differs", "out_of_range"} for c in roll.claims)
    if conflict and roll.waited_s < CUT_SHORT_S:
        return
    yield model.Hit(
        culprits=model.Culprits(nodes=silent, ranks=_ranks(roll, case.world, silent)),
        values={
            "nodes": case.world.labels(silent),
            "ranks": model.ranges(silent),
            "waited_s": f"{roll.waited_s:.1f}",
            **_ways_to_start(case.facts(model.LaunchFacts).get(0), roll.num_nodes),
            "present": len(roll.present),
            "num_nodes": roll.num_nodes,
        },
        # Packets of an unknown node arrive and no answer gets through: then the silent node may well be running.
        confidence=model.Confidence.POSSIBLE if unexplained or misnumbered else model.Confidence.LIKELY,
        evidence=tuple(arrived(c) for c in [c for c in roll.claims if c.refused is None][:MAX_EVIDENCE]),
    )


_ON_ALL = {"slurm": "srun --nodes={num_nodes} --ntasks-per-node=1", "pbs": "pbsdsh --", "lsf": "blaunch"}


def _ways_to_start(launch: model.LaunchFacts | None, num_nodes: int) -> dict[str, list[dict[str, str]]]:
    """Which step of the remedy fits how node 0 was started; one of the lists has one entry."""
    scheduler = (launch.scheduler if launch is not None else None) or ""
    by_flag = launch is not None and launch.sources.get("node_rank", "").startswith("--")
    step: dict[str, str] = {"scheduler": scheduler}
    if scheduler in {"slurm", "openmpi", "mpich", "pals", "jsrun"} and not by_flag:
        way = "by_launcher"
    elif scheduler in _ON_ALL:
        way, step = "on_all", {**step, "start": _ON_ALL[scheduler].format(num_nodes=num_nodes)}
    elif scheduler.startswith("kubernetes"):
        way = "in_pods"
    else:
        way = "by_hand"
    return {name: [step] if name == way else [] for name in ("by_hand", "on_all", "by_launcher", "in_pods")}


def _ranks(roll: model.RollCall, world: model.World, nodes: tuple[int, ...]) -> tuple[int, ...]:
    """Ranks of nodes: as `world` has them, else by the one nproc that all present nodes have."""
    known = {n.node_rank: n.ranks for n in world.nodes if n.ranks}
    sizes = {c.nproc_per_node for c in roll.claims if c.refused is None}
    nproc = sizes.pop() if len(sizes) == 1 else 0
    return tuple(r for n in nodes for r in known.get(n, tuple(range(n * nproc, (n + 1) * nproc))))
