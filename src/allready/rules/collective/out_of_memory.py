from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stage_states import Kind, blame_first_run
from allready.model import Collectives, FaultClass, Hit, RemedyStep, Severity, World
from allready.rules.collective._hits import hit_of


@Rule(
    code="COL006",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_LIMIT,
    layer=Layer.STAGE,
    title="A rank ran out of memory",
    message="rank {ranks} ran out of memory in stage {stage}[[: {error}]]",
    remedy=(
        RemedyStep(explanation="end what holds the memory on node {nodes}, or try a smaller sweep: --max-bytes 64M"),
        RemedyStep(shared="gpu_use"),
        RemedyStep(shared="memory"),
    ),
)
def out_of_memory(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether a rank ended a stage with an out-of-memory error, of its GPU or of the host.
    ## Why it matters
    The stages need little: the largest size of the sweep two or three times, and what CUDA and NCCL take for themselves
    (0.5 to 2 GB on a GPU).  When that does not fit, another process holds the memory, and training would end the same
    way.
    ## Check by hand
    `nvidia-smi --query-gpu=index,memory.used,memory.total --format=csv`; `free -h`; `cat /sys/fs/cgroup/memory.max`.
    ## When it is harmless
    When the sweep was asked for with sizes that rightly do not fit (`--max-bytes`).
    """
    found = blame_first_run(collectives, Kind.MEMORY)
    if found is not None:
        yield hit_of(found, world)
