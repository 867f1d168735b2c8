from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import Culprits, FaultClass, Hit, RemedyStep, RollCall, Severity, ranges
from allready.rules.job._claims import current, evidence, party


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
