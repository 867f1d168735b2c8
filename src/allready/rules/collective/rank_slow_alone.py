from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stage_states import Kind, blame_first_run
from allready.model import Collectives, FaultClass, Hit, RemedyStep, Severity, World
from allready.rules.collective._hits import hits_of_late


@Rule(
    code="COL008",
    severity=Severity.ERROR,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.STAGE,
    title="A rank did not finish a step of its own",
    message="rank {ranks} did not finish stage {stage} within {deadline_s} s ({doing}); this stage waits for no "
    "other rank",
    remedy=(
        RemedyStep(
            explanation="time the import: state D, or a stack in file reading, means that the storage of the "
            "environment is slow",
            command="time python -c 'import torch'",
            where="node {nodes}",
        ),
        RemedyStep(
            explanation="ask the GPU driver: no answer means that it hangs",
            command="timeout 10 nvidia-smi",
            where="node {nodes}",
        ),
        RemedyStep(shared="stack"),
    ),
)
def rank_slow_alone(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The stages in which no rank waits for another (import, device, allocate): who did not finish by the deadline, and
    what its process was doing.
    ## Why it matters
    A cold or overloaded file system makes `import torch` last minutes on some nodes, and a sick driver blocks the first
    CUDA call for ever; the other ranks then wait at the rendezvous and run into its time-out.
    ## Check by hand
    `time python -c 'import torch'` and `time nvidia-smi` on that node, twice.
    ## When it is harmless
    At a first start after a reboot, when a second one is fast.
    """
    found = blame_first_run(collectives, Kind.SLOW_ALONE)
    if found is not None:
        yield from hits_of_late(found, world)
