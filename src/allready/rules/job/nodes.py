"""Nodes that came late, never came, or were lost."""

from collections.abc import Iterator

from allready import model
from allready.judging.addresses import drops_port, half_open_callers, unseen_nodes
from allready.judging.analysis import Analysis
from allready.judging.firewall import locked_out
from allready.judging.master_path import losing_master_paths
from allready.judging.rank_traffic import cut_nodes
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import MAX_EVIDENCE, grouped, listed, seen
from allready.model import Confidence, Culprits, FaultClass, Hit, RemedyStep, RollCall, Severity, World
from allready.model.fill import words_of
from allready.rules.job._claims import HANDLED, ROLL_CALL, arrived, current, evidence

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
    ended the roll call within seconds. Of a node that greeted and did not wait for node 0's answer, the evidence tells.
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
        evidence=(
            *_given_up(roll, silent),
            *(arrived(c) for c in [c for c in roll.claims if c.refused is None][:MAX_EVIDENCE]),
        ),
    )


def _given_up(roll: model.RollCall, nodes: tuple[int, ...]) -> tuple[model.Evidence, ...]:
    """Of these nodes, those that greeted and did not wait for the answer."""
    callers = {c.node_rank: c for c in roll.callers if c.kind == model.GAVE_UP}
    return seen(
        ROLL_CALL,
        {
            n: said("{address}: {what}", address=callers[n].address, what=words_of(callers[n], "detail"))
            for n in nodes
            if n in callers
        },
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


LATE_AFTER_S = 10.0
"""Commands typed by hand or started by a scheduler lie this far apart; image pulls and slow imports further."""

TOO_LATE_AFTER_S = 60.0
"""torchrun's c10d rendezvous gives a connection to the store 60 s: the shortest of the default timeouts."""


@Rule(
    code="JOB002",
    severity=Severity.INFO,
    fault_class=FaultClass.START_ABSENT,
    layer=Layer.ABSENCE,
    title="Nodes arrived late",
    message="node {nodes} started {late_s} s after node {first}, the first to be ready",
    remedy=(
        RemedyStep(
            explanation="find what is slow before the start: image pull, imports from a shared file system, a queue",
            where="node {nodes}",
            command="ps -o lstart,cmd -C python",
        ),
        RemedyStep(
            explanation="if this is expected, give the job a start-up timeout well above {most_s} s", where="every node"
        ),
    ),
)
def node_late(roll: RollCall, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    When each node began to try, compared with the first node. Counted from the start of its own attempts: a node that
    had been waiting for a late node 0 is not late, node 0 is. Delays of 10 s and more are reported; above 60 s it is a
    warning.
    ## Why it matters
    The job's own start-up has timeouts: 60 s in torchrun's rendezvous for the connection to the store, 300 s in JAX,
    600 s for all nodes to join. A node that needs longer ends the job, and the message names no node.
    ## Check by hand
    On the late node: `ps -o lstart,cmd -C python` beside the same on another node.
    ## When it is harmless
    When the commands were typed by hand one after the other.
    """
    claims = [c for c in roll.claims if c.refused is None]
    began = {c.node_rank: c.arrival_s - c.waited_s for c in claims}
    first = min(began, key=lambda r: (began[r], r), default=0)
    late = {r: began[r] - began[first] for r in sorted(began) if began[r] - began[first] > LATE_AFTER_S}
    if not late:
        return
    most_s = max(late.values())
    yield Hit(
        culprits=Culprits(nodes=tuple(late)),
        severity=Severity.WARNING if most_s > TOO_LATE_AFTER_S else None,
        confidence=Confidence.CERTAIN,
        values={
            "nodes": world.labels(tuple(late)),
            "late_s": ", ".join(f"{s:.0f}" for s in list(late.values())[:8]),
            "most_s": f"{most_s:.0f}",
            "first": world.label(first),
        },
        evidence=evidence(c for c in claims if c.node_rank in late or c.node_rank == first),
    )


@Rule(
    code="JOB009",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.DEAD,
    layer=Layer.PROCESS_END,
    title="A node disconnected",
    message="node {nodes} disconnected from node 0 after it had joined[[ ({why})]]",
    remedy=model.RemedyStep(
        explanation="check the end of its output and the kernel log (ended by hand, stopped, killed, out of memory, "
        "machine rebooted), then start it again",
        where="node {at}",
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
    NET-BROKEN and only possible. Where its machine acknowledges all along what its agent does not answer, the agent is
    stopped or gets no processor: CPU-STUCK; a proxy between the two acknowledges in its place, also for a machine that
    is down. Where node 0's own agent did not run for 10 s, and a node closed its
    connection after that, node 0 is named in its place.
    ## When it is harmless
    When the command was ended there on purpose.
    """
    contact = case.facts(model.MasterContactFacts)
    alive = tuple(r for r in roll.lost if (c := contact.get(r)) is not None and c.outcome == "lost")
    cut = case.of(_cut_nodes) & set(roll.lost_silently)  # the broken path itself is named
    losses = dict(zip(roll.lost, roll.losses, strict=False))
    losing = case.of(losing_master_paths).keys()
    # Node 0 did not run, and these left it.
    given_up = {n for n, loss in losses.items() if loss.pause_s is not None} - losing
    apart = cut | losing | given_up
    alive = tuple(r for r in alive if r not in apart)
    gone = tuple(r for r in roll.lost if r not in alive and r not in apart)
    agents = {n for n, loss in losses.items() if loss.reason is model.LossReason.AGENT_SILENT}
    for nodes, broken in ((gone, False), (alive, True)):
        silent = set(nodes) <= set(roll.lost_silently)
        is_agent = silent and not broken and set(nodes) <= agents
        if nodes:
            yield model.Hit(
                culprits=model.Culprits(links=tuple((r, 0) for r in nodes)) if broken else model.Culprits(nodes=nodes),
                fault_class=model.FaultClass.CPU_STUCK
                if is_agent
                else model.FaultClass.NET_BROKEN
                if broken or silent
                else None,
                confidence=model.Confidence.POSSIBLE
                if silent and not (broken or is_agent)
                else model.Confidence.LIKELY,
                values={"nodes": case.world.labels(nodes), "at": case.world.labels(nodes), "why": _why(roll, nodes)},
                evidence=evidence(c for c in roll.claims if c.node_rank in nodes and c.refused is None),
            )
    if given_up:
        pause = f"{max(losses[n].pause_s or 0.0 for n in given_up):.0f}"
        yield model.Hit(
            culprits=model.Culprits(nodes=(0,)),
            fault_class=model.FaultClass.CPU_STUCK,
            confidence=model.Confidence.LIKELY,
            values={
                "nodes": case.world.labels(tuple(sorted(given_up))),
                "at": case.world.labels((0,)),
                "why": said("node 0's own agent did not run for {pause} s, and was given up", pause=pause),
            },
            evidence=evidence(c for c in roll.claims if c.node_rank in given_up and c.refused is None),
        )


def _cut_nodes(case: Analysis) -> frozenset[int]:
    return cut_nodes(case.collectives)


def _why(roll: model.RollCall, nodes: tuple[int, ...]) -> str | None:
    """What ended the connections of these nodes, as node 0 saw it; None when it is not known."""
    known = dict(zip(roll.lost, roll.lost_why, strict=False))
    reasons = grouped((known[node], node) for node in nodes if node in known)
    if len(reasons) == 1:
        return next(iter(reasons))
    return listed([f"{model.ranges(found)}: {why}" for why, found in reasons.items()], 4, "; ") or None


@Rule(
    code="JOB008",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.ENV_MISMATCH,
    layer=Layer.LAUNCH,
    title="Node 0 refused a node",
    message="node 0 refused node {node}: {reason}",
    remedy=model.RemedyStep(
        explanation="compare the command and the version with those of node 0, then start it again",
        where="node {node}",
        command="allready --version",
    ),
)
def node_rejected(launch: model.PerNode[model.LaunchFacts], case: Analysis) -> Iterator[model.Hit]:
    """
    ## What it checks
    Refusals at the roll call that no other rule explains: above all, a node that runs another version of allready. A
    refusal for a duplicate rank, another nnodes or another job id has a finding of its own.
    ## Why it matters
    The node takes no part in the check, so nothing is known of it; and a node with another installation of the tool
    often has another installation of everything.
    ## Check by hand
    `allready --version` on both machines.
    ## When it is harmless
    When the node should not be a member of this job.
    """
    refused: dict[int, tuple[str | None, tuple[model.Evidence, ...]]] = {}
    claims = case.roll.claims if case.roll is not None else ()
    explained = {c.node_rank for c in claims if c.refused in HANDLED}
    for claim in current(claims):
        if claim.refused is not None and claim.refused not in HANDLED:
            refused[claim.node_rank] = (claim.refused, evidence([claim]))
    for node, facts in case.facts(model.MasterContactFacts).items():
        is_own = facts.outcome == "rejected" and model.TokenGap.of(facts.detail) is None
        if is_own and node in launch and node not in explained:
            answer = seen("answer of node 0", {node: facts.detail or said("refused")})
            refused.setdefault(node, (facts.detail or None, answer))
    for node, (reason, answers) in sorted(refused.items()):
        values = {"node": case.world.label(node), "reason": reason}
        yield model.Hit(culprits=model.Culprits(nodes=(node,)), values=values, evidence=answers)
