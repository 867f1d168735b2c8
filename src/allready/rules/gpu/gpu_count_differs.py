"""GPU003."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.majority import Split
from allready.judging.registry import Rule
from allready.model import Culprits, Evidence, FaultClass, GpuFacts, Hit, LaunchFacts, PerNode, Severity, World


@Rule(
    code="GPU003",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.READINESS,
    title="Nodes with the same kind of GPU have different numbers of them",
    message="the number of {model} GPUs that the driver shows differs between nodes: {split}",
    remedy="on the node with fewer: nvidia-smi -L; dmesg | grep -iE 'xid|nvrm' (79: fallen off the bus); "
    "lspci | grep -i nvidia. A GPU that lspci shows and nvidia-smi does not needs a reset or a reboot",
)
def gpu_count_differs(gpu: PerNode[GpuFacts], launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The number of GPUs that the driver shows, before CUDA_VISIBLE_DEVICES, in a job whose GPUs are all of one model and
    which was not told to use Gloo.  A node without any counts as 0.
    ## Why it matters
    A GPU that fell off the bus makes a node smaller than its peers; with the same --nproc-per-node everywhere the job
    does not start there.  With no --backend, one node without GPUs makes the whole job use Gloo on its CPUs.
    ## Check by hand
    `nvidia-smi -L | wc -l` on each node.
    ## When it is harmless
    When the scheduler gave this job different shares of equal machines.
    """
    counts: dict[int, int] = {}
    models: set[str] = set()
    for node, facts in gpu.items():
        if launch[node].backend != "gloo":
            counts[node] = len(facts.gpus)
            models |= {g.name for g in facts.gpus}
    split = Split.by(counts)
    if len(split) < 2 or len(models) != 1:
        return
    most = max(counts.values())
    yield Hit(
        culprits=Culprits(nodes=tuple(n for n in split.outliers() if counts[n] < most)),
        values={"split": split, "model": models.pop()},
        evidence=tuple(
            Evidence(source="NVML", node_rank=node, text=f"node {world.label(node)}: {count} GPUs")
            for node, count in list(counts.items())[:16]
        ),
    )
