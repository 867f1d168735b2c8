"""GPU005."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import (
    Culprits,
    Evidence,
    FaultClass,
    GpuFacts,
    Hit,
    LaunchFacts,
    PerNode,
    Severity,
    SoftwareFacts,
    World,
)


@Rule(
    code="GPU005",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.READINESS,
    title="NCCL is asked for, but there is no NVIDIA driver",
    message="node {node}: NCCL is asked for and torch is built for CUDA {cuda}, but no NVIDIA driver answers",
    remedy="on node {node}: nvidia-smi; in a container: docker run --gpus all (NVIDIA container toolkit); on the "
    "machine: modprobe nvidia, after a kernel update install the driver again; without GPUs: --backend gloo",
)
def no_driver(
    gpu: PerNode[GpuFacts], launch: PerNode[LaunchFacts], software: PerNode[SoftwareFacts], world: World
) -> Iterator[Hit]:
    """
    ## What it checks
    That a driver answers NVML on every node where the backend is nccl and torch is a CUDA build.
    ## Why it matters
    `torch.cuda.is_available()` is false there; the ranks of that node end with "no NVIDIA driver on your system", and
    the ranks of all other nodes wait for them.
    ## Check by hand
    `nvidia-smi`, `ls /dev/nvidia*`, `lsmod | grep nvidia`.
    ## When it is harmless
    Never with NCCL.  With `--backend gloo` nothing is said.
    """
    for node, facts in gpu.items():
        cuda = software[node].versions.get("torch-cuda")
        if facts.driver_version is not None or launch[node].backend != "nccl" or cuda is None:
            continue
        yield Hit(
            culprits=Culprits(nodes=(node,)),
            values={"node": world.label(node), "cuda": cuda},
            evidence=(Evidence(source="NVML", node_rank=node, text="no driver"),),
        )
