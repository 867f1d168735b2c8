import re
from collections.abc import Iterator

from allready import model
from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import nccl_worked, wants_nccl


@Rule(
    code="GPU006",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="The NVIDIA driver is too old for this torch build",
    message="node {node}: [[driver {driver}|the driver]] supports CUDA {driver_cuda} at most, torch is built for "
    "CUDA {torch_cuda}",
    remedy=(
        model.RemedyStep(
            explanation="update the driver (on data-centre GPUs the package cuda-compat helps too)",
            where="node {node}",
            command="nvidia-smi",
        ),
        model.RemedyStep(
            explanation="or install the torch build for CUDA {driver_major} (https://pytorch.org/get-started/locally/)",
            where="node {node}",
            command="python -m pip install torch",
        ),
    ),
)
def driver_too_old(
    gpu: model.PerNode[model.GpuFacts],
    launch: model.PerNode[model.LaunchFacts],
    software: model.PerNode[model.SoftwareFacts],
    case: Analysis,
) -> Iterator[model.Hit]:
    """
    ## What it checks
    The major version of CUDA that torch was built for against the newest that the driver supports. Within one major
    version a newer toolkit runs on an older driver (minor version compatibility, CUDA 11 and later), so 12.8 on a
    driver for 12.2 is fine.
    ## Why it matters
    CUDA does not start: "The NVIDIA driver on your system is too old"; torch then has no GPU, and NCCL no device.
    ## Check by hand
    `nvidia-smi | grep 'CUDA Version'` and `python -c 'import torch; print(torch.version.cuda)'`.
    ## When it is harmless
    With NVIDIA's forward compatibility package (cuda-compat) in the library path; then NCCL works in this check, and
    nothing is reported.
    """
    for node, facts in gpu.items() if not nccl_worked(case.collectives) else ():
        wanted, offered = software[node].versions.get("torch-cuda"), facts.cuda_version
        need, have = _major(wanted), _major(offered)
        if need is not None and have is not None and need > have and wants_nccl(node, launch, gpu):
            yield model.Hit(
                confidence=model.Confidence.LIKELY,
                culprits=model.Culprits(nodes=(node,)),
                values={
                    "node": case.world.label(node),
                    "torch_cuda": wanted,
                    "driver": facts.driver_version or "?",
                    "driver_cuda": offered,
                    "driver_major": f"{have}.x",
                },
                evidence=(
                    stated(
                        "NVML",
                        "driver {driver}, CUDA {cuda}",
                        node_rank=node,
                        driver=facts.driver_version,
                        cuda=offered,
                    ),
                    stated("torch", "built for CUDA {cuda}", node_rank=node, cuda=wanted),
                ),
            )


def _major(version: str | None) -> int | None:
    found = re.match(r"\s*(\d+)", version or "")
    return int(found[1]) if found else None
