"""GPU023."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import seen
from allready.model import (
    Culprits,
    Devices,
    EnvFacts,
    FaultClass,
    GpuFacts,
    Hit,
    ImportFacts,
    PerNode,
    RemedyStep,
    Severity,
    World,
)
from allready.model.fill import UNKNOWN

LIMITS = ("CUDA_VISIBLE_DEVICES", "JAX_CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS")
"""By these a user asks for fewer."""


@Rule(
    code="GPU023",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
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
                    "error": found.error or UNKNOWN,
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
