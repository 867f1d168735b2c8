"""JOB004."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import Culprits, FaultClass, Hit, RemedyStep, RollCall, Severity, World
from allready.rules.job._claims import current, evidence, groups, minority, text, with_node_0


@Rule(
    code="JOB004",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.LAUNCH,
    title="Nodes disagree about the number of nodes",
    message="nnodes differs between nodes: {split}",
    remedy=(
        RemedyStep(
            explanation="start every node with the same --nnodes",
            where="every node",
        ),
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
    The minority is named; on a tie nobody, and all values are shown.
    ## Why it matters
    Every side waits for its own number of members: one never gets enough, or somebody is too many.  It ends in a
    time-out of 600 s and more that shows no number but its own.
    ## Check by hand
    `pgrep -af allready` on each node; with variables, `env | grep -E 'NNODES|WORLD_SIZE|NUM_NODES'`.
    ## When it is harmless
    With an elastic job (`--nnodes 2:4`), when nodes were given different bounds on purpose.
    """
    ours = [c for c in roll.claims if c.refused not in {"job_id_differs", "version"}]
    found = groups(
        with_node_0(roll, world.label(0).partition("(")[2].rstrip(")"), current(ours)), lambda c: c.num_nodes
    )
    if len(found) < 2:
        return
    odd = minority(found)
    yield Hit(
        culprits=Culprits(nodes=odd, variables=("nnodes",)),
        values={"split": text(found)},
        evidence=evidence(c for g in reversed(found) for c in g.claims),
    )
