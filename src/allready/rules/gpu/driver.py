"""The driver, and what the frameworks see through it."""

import re
from collections.abc import Iterator

from allready import model
from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said, stated
from allready.judging.values import nccl_worked, seen, wants_nccl
from allready.model import (
    Culprits,
    Devices,
    EnvFacts,
    FaultClass,
    GpuFacts,
    Hit,
    ImportFacts,
    LaunchFacts,
    PerNode,
    RemedyStep,
    Severity,
    SoftwareFacts,
    World,
)


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
                    "driver": facts.driver_version or None,
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


@Rule(
    code="GPU008",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="NCCL is requested, but torch is a CPU build",
    message="node {node}: torch {version} is built without CUDA, but the backend is nccl",
    remedy=(
        RemedyStep(
            explanation="install a CUDA build of torch in the environment that the job uses "
            "(https://pytorch.org/get-started/locally/)",
            where="node {node}",
            command="python -m pip install torch",
        ),
        RemedyStep(explanation="without GPUs: --backend gloo", where="every node"),
    ),
)
def no_cuda_build(software: PerNode[SoftwareFacts], launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether torch is a CPU build (version ending in +cpu) on a node where the backend is nccl.
    ## Why it matters
    `init_process_group("nccl")` fails at once on that node ("Distributed package doesn't have NCCL built in"), and the
    other nodes wait for it.
    ## Check by hand
    `python -c 'import torch; print(torch.__version__, torch.version.cuda)'` with the Python that the job uses.
    ## When it is harmless
    Never with NCCL. With `--backend gloo` nothing is reported.
    """
    for node, facts in software.items():
        version = facts.versions.get("torch", "")
        if launch[node].backend == "nccl" and "+cpu" in version and "torch-cuda" not in facts.versions:
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={"node": world.label(node), "version": version},
                evidence=seen("torch", {node: version}),
            )


LIMITS = ("CUDA_VISIBLE_DEVICES", "JAX_CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS")
"""By these a user asks for fewer."""


@Rule(
    code="GPU023",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="torch or JAX sees fewer GPUs than the driver lists",
    message="node {node}: the driver lists {listed} GPUs, {module} sees {seen}[[: {error}]]",
    remedy=(
        RemedyStep(
            explanation="the kernel log has the reason of a GPU that the driver lists and CUDA does not take",
            where="node {node}",
            command="dmesg | grep -i -e nvrm -e xid | tail; nvidia-smi -q -d PAGE_RETIREMENT,ROW_REMAPPER",
        ),
        RemedyStep(
            explanation="where there is NVSwitch (error 802), the fabric manager must run, in the driver's version",
            where="node {node}",
            command="systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -i -A3 fabric",
        ),
        RemedyStep(
            explanation="in a container, the files /dev/nvidia* must be those of the GPUs that are listed",
            where="node {node}",
            command="ls -l /dev/nvidia*; nvidia-smi -L",
        ),
    ),
)
def framework_sees_fewer(
    imports: PerNode[ImportFacts], gpu: PerNode[GpuFacts], env: PerNode[EnvFacts], world: World
) -> Iterator[Hit]:
    """
    ## What it checks
    With `--use-gpus`: how many GPUs torch, and JAX where it uses GPUs, see in a process of their own, against the list
    of the driver. Only where nothing limits them (CUDA_VISIBLE_DEVICES, JAX_PLATFORMS), all GPUs are of one model, none
    is divided by MIG, and torch is a build for CUDA.
    ## Why it matters
    The ranks on the missing GPUs end with "invalid device ordinal", or all of them with "no CUDA-capable device".
    ## Check by hand
    `nvidia-smi -L | wc -l`; `python -c 'import torch; print(torch.cuda.device_count())'`.
    ## When it is harmless
    When the job uses the other framework, or fewer GPUs.
    """
    for node, facts in imports.items():
        driver = gpu[node]
        if driver.visible_devices is not None or any(name in env[node].variables for name in LIMITS):
            continue
        if len({one.name for one in driver.gpus}) != 1 or any(one.is_mig for one in driver.gpus):
            continue
        for one in facts.modules:
            found = one.devices
            if found is None or not _counts(one.module, found) or len(found.names) >= len(driver.gpus):
                continue
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "module": one.module,
                    "listed": len(driver.gpus),
                    "seen": len(found.names),
                    "error": found.error or None,
                },
                evidence=seen(
                    f"devices of {one.module}",
                    {
                        node: said(
                            "{platform}: {num} of {all}",
                            platform=found.platform,
                            num=len(found.names),
                            all=len(driver.gpus),
                        )
                    },
                ),
            )


def _counts(module: str, found: Devices) -> bool:
    """Whether it means to use the GPUs of this driver: JAX that takes the CPU may be built for it only."""
    return found.outcome == "answered" and found.platform in ({"cuda"} if module == "torch" else {"gpu", "cuda"})
