"""GPU002."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.judging.values import wants_nccl
from allready.model import Culprits, Evidence, FaultClass, GpuFacts, Hit, LaunchFacts, PerNode, Severity, World


@Rule(
    code="GPU002",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.READINESS,
    title="More ranks than GPUs on a node",
    message="node {node}: {nproc} ranks are to use NCCL, but {num_gpus} GPUs are offered to them ({limited_by})",
    remedy="offer more GPUs: unset CUDA_VISIBLE_DEVICES, docker run --gpus all, Slurm: --gpus-per-node={nproc}; or "
    "start fewer ranks: --nproc-per-node (offered here: {num_gpus}). If nvidia-smi -L shows fewer GPUs than are "
    "installed, dmesg | grep -i xid says why",
)
def too_few_gpus(gpu: PerNode[GpuFacts], launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    That every rank of a node has a GPU of its own when NCCL is asked for: nproc-per-node against the GPUs that
    --devices and CUDA_VISIBLE_DEVICES leave.  Nodes without a driver are the business of GPU005.
    ## Why it matters
    The surplus ranks end with "invalid device ordinal", or share a GPU, which NCCL refuses ("Duplicate GPU detected").
    ## Check by hand
    `nvidia-smi -L | wc -l` and `echo $CUDA_VISIBLE_DEVICES` under the launcher.
    ## When it is harmless
    Never with NCCL; ranks that only use the CPU need `--backend gloo`.
    """
    for node, facts in gpu.items():
        job = launch[node]
        if facts.driver_version is None or not wants_nccl(node, launch, gpu):
            continue
        num_gpus = len(job.devices) if job.devices else len(facts.visible)
        if job.nproc_per_node <= num_gpus:
            continue
        limited_by = (
            f"--devices {','.join(job.devices)}"
            if job.devices
            else f"CUDA_VISIBLE_DEVICES={facts.visible_devices}"
            if facts.visible_devices is not None
            else f"NVML: {len(facts.gpus)}"
        )
        yield Hit(
            culprits=Culprits(nodes=(node,)),
            values={
                "node": world.label(node),
                "nproc": job.nproc_per_node,
                "num_gpus": num_gpus,
                "limited_by": limited_by,
            },
            evidence=(
                Evidence(
                    source="NVML",
                    node_rank=node,
                    text=f"{len(facts.gpus)} GPUs, visible {list(facts.visible)}, driver {facts.driver_version}",
                ),
            ),
        )
