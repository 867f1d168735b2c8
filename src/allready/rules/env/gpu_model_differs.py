"""ENV006."""

from collections import Counter
from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.majority import Split
from allready.judging.node_split import brief, some
from allready.judging.registry import Rule
from allready.model import Culprits, Evidence, FaultClass, GpuFacts, Hit, PerNode, Severity


@Rule(
    code="ENV006",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.READINESS,
    title="Nodes have different GPUs",
    message="the models of the GPUs differ between nodes: {split}",
    remedy="use nodes of one kind; if the mixture is meant, size batches for the smallest memory and expect "
    "the pace of the slowest: nvidia-smi -L",
)
def gpu_model_differs(gpu: PerNode[GpuFacts]) -> Iterator[Hit]:
    """
    ## What it checks
    Which models of GPUs the job may use on each node. How many of them there are is another rule's business, and
    nodes without any are left out.
    ## Why it matters
    Every step waits for the slowest GPU, and the one with the least memory runs out first. NCCL builds its rings for
    the weakest link.
    ## Check by hand
    `nvidia-smi -L` on every node.
    ## When it is harmless
    When the mixture is meant and the work is divided accordingly.
    """
    models: dict[int, str] = {}
    for node, facts in gpu.items():
        usable = set(facts.visible)
        found = Counter(g.name for g in facts.gpus if g.index in usable)
        if found:
            models[node] = " + ".join(sorted(found))
    split = Split.by(models)
    if len(split) < 2:
        return
    outliers = split.outliers()
    yield Hit(
        culprits=Culprits(nodes=outliers),
        values={"split": brief(split)},
        evidence=tuple(Evidence(source="NVML", text=models[n], node_rank=n) for n in some(models, outliers)),
    )
