from collections.abc import Iterator

from allready.judging.majority import Split
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import on_nodes, seen
from allready.model import Culprits, FaultClass, GpuFacts, Hit, LaunchFacts, PerNode, RemedyStep, Severity, World


@Rule(
    code="GPU003",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="Nodes with the same GPU model have different numbers of GPUs",
    message="the number of {model} GPUs differs between nodes: {split}",
    remedy=(
        RemedyStep(
            explanation="find out why GPUs are missing (Xid 79: fallen off the bus)",
            where="node {nodes}",
            command="nvidia-smi -L; dmesg | grep -iE 'xid|nvrm'; lspci | grep -i nvidia",
        ),
        RemedyStep(explanation="a GPU that lspci shows and nvidia-smi does not needs a reset or a reboot"),
    ),
)
def gpu_count_differs(gpu: PerNode[GpuFacts], launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The number of GPUs that the driver shows, before CUDA_VISIBLE_DEVICES, in a job whose GPUs are all of one model and
    whose backend is not Gloo. A node without any counts as 0.
    ## Why it matters
    A GPU that fell off the bus makes a node smaller than its peers; with the same --nproc-per-node everywhere the job
    does not start there. Without --backend, one node without GPUs makes the whole job use Gloo on its CPUs.
    ## Check by hand
    `nvidia-smi -L | wc -l` on each node.
    ## When it is harmless
    When the scheduler gave this job different shares of equal machines.
    """
    used = {node: facts.gpus for node, facts in gpu.items() if launch[node].backend != "gloo"}
    counts = {node: len(gpus) for node, gpus in used.items()}
    models = {g.name for gpus in used.values() for g in gpus}
    split = Split.by(counts, num_members=len(counts) + world.num_nodes - len(gpu))
    if len(split) < 2 or len(models) != 1:
        return
    most = max(counts.values())
    yield Hit(
        culprits=Culprits(nodes=tuple(n for n in split.outliers() if counts[n] < most)),
        values={
            "split": split,
            "model": models.pop(),
            "nodes": on_nodes(world, [n for n, count in counts.items() if count < most]),
        },
        evidence=seen(
            "NVML", {n: said("node {node}: {num} GPUs", node=world.label(n), num=num) for n, num in counts.items()}
        ),
    )
