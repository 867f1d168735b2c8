from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.model import Culprits, FaultClass, GpuFacts, Hit, RemedyStep, RollCall, Severity
from allready.rules.job._claims import compare, current


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
