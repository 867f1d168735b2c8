"""GPU006."""

import re
from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.judging.values import nccl_worked, wants_nccl
from allready.model import (
    Collectives,
    Confidence,
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
    code="GPU006",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.READINESS,
    title="The driver is too old for this build of torch",
    message="node {node}: torch is built for CUDA {torch_cuda}, driver {driver} supports CUDA {driver_cuda} at most",
    remedy="update the driver on node {node}, or install the build of torch for CUDA {driver_major} "
    "(https://pytorch.org/get-started/locally/); on data-centre GPUs the package cuda-compat helps too",
)
def driver_too_old(
    gpu: PerNode[GpuFacts],
    launch: PerNode[LaunchFacts],
    software: PerNode[SoftwareFacts],
    world: World,
    collectives: Collectives | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    The major version of CUDA that torch was built for against the newest that the driver supports.  Within one major
    version a newer toolkit runs on an older driver (minor version compatibility, CUDA 11 and later), so 12.8 on a
    driver for 12.2 is fine.
    ## Why it matters
    CUDA does not start: "The NVIDIA driver on your system is too old"; torch then has no GPU, and NCCL no device.
    ## Check by hand
    `nvidia-smi | grep 'CUDA Version'` and `python -c 'import torch; print(torch.version.cuda)'`.
    ## When it is harmless
    With NVIDIA's forward compatibility package (cuda-compat) in the library path; then NCCL works in this check, and
    nothing is said.
    """
    if nccl_worked(collectives):
        return
    for node, facts in gpu.items():
        wanted = software[node].versions.get("torch-cuda")
        offered = facts.cuda_version
        if wanted is None or offered is None or not wants_nccl(node, launch, gpu):
            continue
        need, have = _major(wanted), _major(offered)
        if need is None or have is None or need <= have:
            continue
        yield Hit(
            confidence=Confidence.LIKELY,
            culprits=Culprits(nodes=(node,)),
            values={
                "node": world.label(node),
                "torch_cuda": wanted,
                "driver": facts.driver_version or "?",
                "driver_cuda": offered,
                "driver_major": f"{have}.x",
            },
            evidence=(
                Evidence(source="NVML", node_rank=node, text=f"driver {facts.driver_version}, CUDA {offered}"),
                Evidence(source="torch", node_rank=node, text=f"built for CUDA {wanted}"),
            ),
        )


def _major(version: str) -> int | None:
    found = re.match(r"\s*(\d+)", version)
    return int(found[1]) if found else None
