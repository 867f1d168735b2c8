from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import wants_nccl
from allready.model import FaultClass, GpuFacts, Hit, LaunchFacts, PerNode, RemedyStep, Severity, World


@Rule(
    code="GPU007",
    severity=Severity.INFO,
    fault_class=FaultClass.HEALTHY,
    layer=Layer.READINESS,
    title="GPUs of a node stay unused",
    message="node {node}: {nproc} ranks use {nproc} of {num_gpus} available GPUs",
    remedy=RemedyStep(explanation="to use all of them: --nproc-per-node {num_gpus}", where="node {node}"),
)
def gpu_idle(gpu: PerNode[GpuFacts], launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether a node offers more GPUs than it has ranks, while --devices or CUDA_VISIBLE_DEVICES do not choose them.
    ## Why it matters
    It costs only the idle GPUs; a forgotten --nproc-per-node looks like this.
    ## Check by hand
    `nvidia-smi -L | wc -l`.
    ## When it is harmless
    Always; it is information only.
    """
    for node, facts in gpu.items():
        job, num_gpus = launch[node], len(facts.visible)
        chosen = bool(job.devices) or facts.visible_devices is not None
        if not chosen and job.nproc_per_node < num_gpus and wants_nccl(node, launch, gpu):
            yield Hit(
                values={"node": world.label(node), "nproc": job.nproc_per_node, "num_gpus": num_gpus},
                evidence=(stated("NVML", "visible GPUs: {gpus}", node_rank=node, gpus=list(facts.visible)),),
            )
