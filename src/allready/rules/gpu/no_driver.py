from collections.abc import Iterator

from allready import model
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import seen


@Rule(
    code="GPU005",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="NCCL is requested, but there is no NVIDIA driver",
    message="node {node}: no NVIDIA driver responds, but the backend is nccl and torch is built for CUDA {cuda}",
    remedy=(
        model.RemedyStep(
            explanation="in a container, pass the GPUs in (NVIDIA container toolkit)",
            where="node {node}",
            command="docker run --gpus all",
        ),
        model.RemedyStep(
            explanation="on the machine, load the driver; after a kernel update install it again",
            where="node {node}",
            command="modprobe nvidia && nvidia-smi",
        ),
        model.RemedyStep(explanation="without GPUs: --backend gloo", where="every node"),
    ),
)
def no_driver(
    gpu: model.PerNode[model.GpuFacts],
    launch: model.PerNode[model.LaunchFacts],
    software: model.PerNode[model.SoftwareFacts],
    world: model.World,
) -> Iterator[model.Hit]:
    """
    ## What it checks
    That a driver answers NVML on every node where the backend is nccl and torch is a CUDA build.
    ## Why it matters
    `torch.cuda.is_available()` is false there; the ranks of that node end with "no NVIDIA driver on your system", and
    the ranks of all other nodes wait for them.
    ## Check by hand
    `nvidia-smi`, `ls /dev/nvidia*`, `lsmod | grep nvidia`.
    ## When it is harmless
    Never with NCCL. With `--backend gloo` nothing is reported.
    """
    for node, facts in gpu.items():
        cuda = software[node].versions.get("torch-cuda")
        if facts.driver_version is None and launch[node].backend == "nccl" and cuda is not None:
            yield model.Hit(
                culprits=model.Culprits(nodes=(node,)),
                values={"node": world.label(node), "cuda": cuda},
                evidence=seen("NVML", {node: said("no driver")}),
            )
