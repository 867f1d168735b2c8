from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stage_states import Kind, blame_first_run
from allready.model import Collectives, FaultClass, Hit, RemedyStep, Severity, World
from allready.rules.collective._hits import hit_of


@Rule(
    code="COL004",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DEAD,
    layer=Layer.STAGE,
    title="The framework cannot be imported on a rank",
    message="rank {ranks} cannot import what it needs: {error}",
    remedy=(
        RemedyStep(
            explanation="import the library with the same Python as the job (JAX: import jax)",
            command="python -c 'import torch'",
            where="node {nodes}",
        ),
        RemedyStep(
            explanation="check that this is the Python and the packages that you mean",
            command="which python; python -m pip check",
            where="node {nodes}",
        ),
        RemedyStep(shared="library_path"),
    ),
)
def import_failed(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    That every rank's process can import torch (or JAX, with --framework jax).
    ## Why it matters
    A rank that ends in an import never opens or joins the store; all others wait for it for 60 to 1800 seconds.
    ## Check by hand
    `python -X importtime -c 'import torch' 2>&1 | tail` on that node, with the Python of the job.
    ## When it is harmless
    Never.
    """
    found = blame_first_run(collectives, Kind.IMPORT)
    if found is not None:
        yield hit_of(found, world)
