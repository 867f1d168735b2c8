from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import seen, wants_nccl
from allready.model import Culprits, FaultClass, GpuFacts, Hit, LaunchFacts, PerNode, RemedyStep, Severity, World


@Rule(
    code="GPU002",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="More ranks than GPUs on a node",
    message="node {node}: {nproc} NCCL ranks have only {num_gpus} GPUs ({limited_by})",
    remedy=(
        RemedyStep(
            explanation="give the ranks more GPUs: docker run --gpus all, Slurm: --gpus-per-node={nproc}, or",
            where="node {node}",
            command="unset CUDA_VISIBLE_DEVICES",
        ),
        RemedyStep(explanation="or start fewer ranks: --nproc-per-node {num_gpus}", where="node {node}"),
        RemedyStep(
            explanation="if fewer GPUs are listed than are installed, the kernel log has the reason",
            where="node {node}",
            command="nvidia-smi -L; dmesg | grep -i xid",
        ),
    ),
)
def too_few_gpus(gpu: PerNode[GpuFacts], launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    That every rank of a node has a GPU of its own when NCCL is used: nproc-per-node against the GPUs that --devices and
    CUDA_VISIBLE_DEVICES leave. Nodes without a driver are left to GPU005.
    ## Why it matters
    The surplus ranks end with "invalid device ordinal", or share a GPU, which NCCL refuses ("Duplicate GPU detected").
    ## Check by hand
    `nvidia-smi -L | wc -l` and `echo $CUDA_VISIBLE_DEVICES` under the launcher.
    ## When it is harmless
    Never with NCCL; ranks that only use the CPU need `--backend gloo`.
    """
    for node, facts in gpu.items():
        job = launch[node]
        num_gpus = len(job.devices or facts.visible)
        if facts.driver_version is None or job.nproc_per_node <= num_gpus or not wants_nccl(node, launch, gpu):
            continue
        limited_by = f"NVML: {len(facts.gpus)}"
        if job.devices:
            limited_by = f"--devices {','.join(job.devices)}"
        elif facts.visible_devices is not None:
            limited_by = f"CUDA_VISIBLE_DEVICES={facts.visible_devices}"
        text = said(
            "{num} GPUs, visible {visible}, driver {driver}",
            num=len(facts.gpus),
            visible=list(facts.visible),
            driver=facts.driver_version,
        )
        yield Hit(
            culprits=Culprits(nodes=(node,)),
            values={
                "node": world.label(node),
                "nproc": job.nproc_per_node,
                "num_gpus": num_gpus,
                "limited_by": limited_by,
            },
            evidence=seen("NVML", {node: text}),
        )
