"""JOB005."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import Culprits, FaultClass, GpuFacts, Hit, PerNode, RemedyStep, RollCall, Severity
from allready.rules.job._claims import current, evidence, groups, minority, text


@Rule(
    code="JOB005",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.READINESS,
    title="Nodes start different numbers of ranks",
    message="nproc-per-node differs between nodes: {split}; the world then has {world_size} ranks",
    remedy=(
        RemedyStep(
            explanation="give the same --nproc-per-node, unless it is meant so",
            where="every node",
        ),
        RemedyStep(
            explanation="scripts that compute a rank as node_rank * nproc + local_rank are wrong in such a "
            "job: let them read RANK and WORLD_SIZE",
        ),
    ),
)
def nproc_differs(roll: RollCall, gpu: PerNode[GpuFacts] | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    The number of ranks that each node is going to start.  The minority is named; on a tie nobody.
    ## Why it matters
    It is allowed, and seldom meant.  Ranks are numbered node after node, so a script that multiplies node rank and
    nproc by itself gives two processes one rank, and equal shares of the data are no longer equal per node.
    ## Check by hand
    `nvidia-smi -L | wc -l` and the launch command on the nodes named.
    ## When it is harmless
    When the nodes really have different numbers of GPUs and each uses all of its own: then it is only told as
    information.
    """
    found = groups(current(c for c in roll.claims if c.refused is None), lambda c: c.nproc_per_node)
    if len(found) < 2:
        return
    claims = [c for g in found for c in g.claims]
    num_gpus = {c.node_rank: len(gpu[c.node_rank].visible) for c in claims if gpu is not None and c.node_rank in gpu}
    on_purpose = all(num_gpus.get(c.node_rank) == c.nproc_per_node for c in claims)
    odd = minority(found)
    yield Hit(
        culprits=Culprits() if on_purpose else Culprits(nodes=odd) if odd else Culprits(variables=("nproc_per_node",)),
        severity=Severity.INFO if on_purpose else None,
        values={"split": text(found), "world_size": sum(c.nproc_per_node for c in claims)},
        evidence=evidence(c for g in reversed(found) for c in g.claims),
    )
