"""What nodes claim of themselves and the job: numbers that do not fit together."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.model import Claim, Culprits, FaultClass, GpuFacts, Hit, RemedyStep, RollCall, Severity, World, ranges
from allready.rules.job._claims import compare, current, evidence, party


@Rule(
    code="JOB003",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.LAUNCH,
    title="Two nodes have the same node rank",
    message="two processes have node rank {node}: {parties}",
    remedy=RemedyStep(
        explanation="give one of them another --node-rank[[ (free: {free})]]; if it is left over from an earlier "
        "start, end it on its host by its pid"
    ),
)
def duplicate_rank(roll: RollCall) -> Iterator[Hit]:
    """
    ## What it checks
    That no two processes reported to node 0 with the same node rank, node 0's own included. Both are named with host,
    address and pid; only the person who started them knows which of the two is wrong.
    ## Why it matters
    Two agents with one rank overwrite each other's entries in the store. The job hangs with `worker_count >
    world_size`, or some rank never comes, and no message gives the reason.
    ## Check by hand
    On both machines, with the pids above: `ps -o pid,lstart,args -p PID`, and `xargs -0 -n1 < /proc/PID/environ | grep
    -E 'RANK|SLURM'`.
    ## When it is harmless
    Never. A node that lost its connection and came back with the same rank is not counted.
    """
    by_rank: dict[int, dict[tuple[str, str, int], Claim]] = {}
    # One process may have asked several times: that it was admitted counts more than that it was not.
    for claim in sorted(roll.claims, key=lambda c: (c.refused is None, c.arrival_s)):
        if claim.refused in {None, "duplicate_rank"}:
            by_rank.setdefault(claim.node_rank, {})[(claim.name, claim.address, claim.pid)] = claim
    for node_rank, claims in sorted(by_rank.items()):
        parties = _parties(list(claims.values()))
        if any(c.refused for c in parties):
            both = " / ".join(map(party, parties[:6]))
            yield Hit(
                culprits=Culprits(nodes=(node_rank,)),
                values={
                    "node": node_rank,
                    "parties": both if len(parties) > 1 else said("{party} and another one", party=both),
                    "free": ranges(roll.missing) or None,
                },
                evidence=evidence(parties),
            )


def _parties(claims: list[Claim]) -> list[Claim]:
    """Those that exclude each other, first come first; a host that was refused and admitted later is none of them."""
    admitted = {(c.name, c.address): c.arrival_s for c in claims if c.refused is None}
    return [
        c
        for c in sorted(claims, key=lambda c: c.arrival_s)
        if c.refused is None or c.arrival_s >= admitted.get((c.name, c.address), 0.0)
    ]


@Rule(
    code="JOB007",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.LAUNCH,
    title="A node rank is out of range",
    message="node rank {node}[[ ({party})]] does not exist in a job of {num_nodes} nodes: ranks are 0 to {last}",
    remedy=RemedyStep(explanation="node ranks count from 0: start it with --node-rank {free}"),
)
def rank_out_of_range(roll: RollCall) -> Iterator[Hit]:
    """
    ## What it checks
    That the node ranks that reported lie between 0 and nnodes - 1, for nodes that agree on nnodes.
    ## Why it matters
    Usually the numbering began at 1: then the last node has a rank that does not exist, one rank inside is never taken,
    and all nodes wait for it.
    ## Check by hand
    The `--node-rank` (or SLURM_NODEID, JOB_COMPLETION_INDEX, OMPI_COMM_WORLD_NODE_RANK) of the machine named.
    ## When it is harmless
    Never.
    """
    for claim in current(roll.claims):
        is_comparable = claim.num_nodes == roll.num_nodes and claim.refused not in {None, "job_id_differs", "version"}
        if is_comparable and not 0 <= claim.node_rank < roll.num_nodes:
            yield Hit(
                culprits=Culprits(nodes=(claim.node_rank,)),
                values={
                    "node": claim.node_rank,
                    "party": party(claim),
                    "num_nodes": roll.num_nodes,
                    "last": roll.num_nodes - 1,
                    "free": ranges(roll.missing) or "N",
                },
                evidence=evidence([claim]),
            )


@Rule(
    code="JOB004",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.LAUNCH,
    title="Nodes disagree about the number of nodes",
    message="{split}: the nodes disagree about the number of nodes",
    remedy=(
        RemedyStep(explanation="start every node with the same --nnodes", where="every node"),
        RemedyStep(
            explanation="where it comes from the environment, compare",
            where="every node",
            command="env | grep -E 'WORLD_SIZE|NNODES|SLURM_(JOB_NUM_NODES|NNODES)'",
        ),
    ),
)
def world_size_differs(roll: RollCall, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The number of nodes that each node was started for, node 0's own included, also of nodes that node 0 refused for it.
    The minority is named; on a tie no node is, and all values are shown.
    ## Why it matters
    Every side waits for its own number of members: one never gets enough, or has one too many. It ends in a timeout of
    600 s and more that shows only its own number.
    ## Check by hand
    `pgrep -af allready` on each node; with variables, `env | grep -E 'NNODES|WORLD_SIZE|NUM_NODES'`.
    ## When it is harmless
    With an elastic job (`--nnodes 2:4`), when nodes were given different bounds on purpose.
    """
    claims = current(c for c in roll.claims if c.refused not in {"job_id_differs", "version"})
    if not any(c.node_rank == 0 and c.refused is None for c in claims):  # a refused node gets part of the roll
        own = Claim(
            node_rank=0,
            name=world.name(0),
            address="",
            pid=0,
            num_nodes=roll.num_nodes,
            nproc_per_node=0,
            job_id="",
            arrival_s=0.0,
        )
        claims = (own, *claims)
    found = compare(claims, lambda c: c.num_nodes, num_nodes=roll.num_nodes)
    if found is not None:
        yield Hit(
            culprits=Culprits(nodes=found.odd, variables=("nnodes",)),
            values={"split": found.clauses("--nnodes")},
            evidence=found.evidence,
        )


@Rule(
    code="JOB005",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="Nodes start different numbers of ranks",
    message="{split}: the nodes start different numbers of ranks, and the world size is then {world_size}",
    remedy=(
        RemedyStep(
            explanation="give the same --nproc-per-node, unless the difference is intentional", where="every node"
        ),
        RemedyStep(
            explanation="scripts that compute a rank as node_rank * nproc + local_rank are wrong in such a job: let "
            "them read RANK and WORLD_SIZE"
        ),
    ),
)
def nproc_differs(roll: RollCall, case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    The number of ranks that each node is going to start. The minority is named; on a tie no node is.
    ## Why it matters
    It is allowed, and seldom intentional. Ranks are numbered node after node, so a script that multiplies node rank and
    nproc by itself gives two processes one rank, and equal shares of the data are no longer equal per node.
    ## Check by hand
    `nvidia-smi -L | wc -l` and the launch command on the named nodes.
    ## When it is harmless
    When the nodes have different numbers of GPUs and each uses all of its own: then it is information only.
    """
    here = current(c for c in roll.claims if c.refused is None)
    found = compare(here, lambda c: c.nproc_per_node, num_nodes=roll.num_nodes)
    if found is None:
        return
    num_gpus = {node: len(facts.visible) for node, facts in case.facts(GpuFacts).items()}
    on_purpose = all(num_gpus.get(c.node_rank) == c.nproc_per_node for c in found.claims)
    culprits = Culprits(nodes=found.odd) if found.odd else Culprits(variables=("nproc_per_node",))
    yield Hit(
        culprits=Culprits() if on_purpose else culprits,
        severity=Severity.INFO if on_purpose else None,
        values={"split": found.clauses("--nproc-per-node"), "world_size": sum(c.nproc_per_node for c in found.claims)},
        evidence=found.evidence,
    )


@Rule(
    code="JOB006",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.LAUNCH,
    title="A node of another job connected to node 0",
    message="nodes at the master port have different job ids: {split}[[; refused: {refused}]]",
    remedy=(
        RemedyStep(explanation="if it is the same job, start it with the same --rdzv-id", where="every node"),
        RemedyStep(explanation="if these are two jobs, give one of them another --master-port"),
    ),
)
def job_id_differs(roll: RollCall) -> Iterator[Hit]:
    """
    ## What it checks
    The job ids of all nodes that connected to node 0, also of those that it refused for it. The minority is named; on a
    tie no node is. While no node of the own job is missing it is a warning: the other one only has the wrong port.
    ## Why it matters
    Two jobs with one master address and port mix: ranks of one join the store of the other, and both hang with
    `worker_count > world_size`.
    ## Check by hand
    Compare the launch commands (`--rdzv-id`, `--rdzv_id`) on the two machines named, and who started them.
    ## When it is harmless
    When the other job is a leftover that will end by itself, and all nodes of this one are here.
    """
    here = current(c for c in roll.claims if c.refused in {None, "job_id_differs"})
    found = compare(here, lambda c: c.job_id, num_nodes=roll.num_nodes)
    if found is None:
        return
    refused = [c for c in found.claims if c.refused is not None]
    is_needed = bool({c.node_rank for c in refused} & set(roll.missing))
    yield Hit(
        culprits=Culprits(nodes=found.odd) if found.odd else Culprits(variables=("job_id",)),
        severity=None if is_needed else Severity.WARNING,
        values={
            "split": found.clauses("--rdzv-id"),
            "refused": " / ".join(f"{c.node_rank} ({party(c)})" for c in refused[:6]) or None,
        },
        evidence=found.evidence,
    )
