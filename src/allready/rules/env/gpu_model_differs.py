from collections.abc import Iterator

from allready.judging.node_split import differing
from allready.judging.registry import Applies, Layer, Rule
from allready.model import FaultClass, GpuFacts, Hit, PerNode, RemedyStep, Severity, World


@Rule(
    code="ENV006",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    title="Nodes have different GPU models",
    message="GPU models differ between nodes: {split}",
    remedy=RemedyStep(
        explanation="use nodes of one kind; if the mixture is intentional, size batches for the smallest memory and "
        "expect the pace of the slowest",
        where="every node",
        command="nvidia-smi -L",
    ),
)
def gpu_model_differs(gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Which GPU models the job may use on each node. Their number is left to GPU003, and nodes without any are left out.
    ## Why it matters
    Every step waits for the slowest GPU, and the one with the least memory runs out first. NCCL builds its rings for
    the weakest link.
    ## Check by hand
    `nvidia-smi -L` on every node.
    ## When it is harmless
    When the mixture is intentional and the work is divided accordingly.
    """
    models = {n: " + ".join(sorted({g.name for g in f.gpus if g.index in f.visible})) for n, f in gpu.items()}
    shown = {n: names for n, names in models.items() if names}
    num_without = len(models) - len(shown)
    yield from differing(shown, "NVML", num_nodes=world.num_nodes - num_without)
