from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import Claim, Culprits, FaultClass, Hit, RemedyStep, RollCall, Severity, World
from allready.rules.job._claims import compare, current


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
