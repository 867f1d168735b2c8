"""GPU007."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.judging.values import wants_nccl
from allready.model import Evidence, FaultClass, GpuFacts, Hit, LaunchFacts, PerNode, Severity, World


@Rule(
    code="GPU007",
    severity=Severity.INFO,
    fault_class=FaultClass.HEALTHY,
    since="0.1",
    layer=Layer.READINESS,
    title="GPUs of a node stay unused",
    message="node {node}: {nproc} ranks use {nproc} of the {num_gpus} GPUs offered to them",
    remedy="to use all of them: --nproc-per-node {num_gpus}",
)
def gpu_idle(gpu: PerNode[GpuFacts], launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether a node offers more GPUs than it has ranks, and nobody chose them with --devices or CUDA_VISIBLE_DEVICES.
    ## Why it matters
    It costs nothing but the GPUs that wait; a forgotten --nproc-per-node looks like this.
    ## Check by hand
    `nvidia-smi -L | wc -l`.
    ## When it is harmless
    Always; it is said for information.
    """
    for node, facts in gpu.items():
        job, num_gpus = launch[node], len(facts.visible)
        chosen = bool(job.devices) or facts.visible_devices is not None
        if chosen or job.nproc_per_node >= num_gpus or not wants_nccl(node, launch, gpu):
            continue
        yield Hit(
            values={"node": world.label(node), "nproc": job.nproc_per_node, "num_gpus": num_gpus},
            evidence=(Evidence(source="NVML", node_rank=node, text=f"visible GPUs: {list(facts.visible)}"),),
        )
