"""GPU016."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.model import Culprits, FaultClass, GpuFacts, Hit, PerNode, RemedyStep, Severity, World


@Rule(
    code="GPU016",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.MACHINE,
    title="The NVLink fabric of a GPU is not ready",
    message="node {node}: the fabric manager has not registered GPU {gpu}[[ ({state})]]",
    remedy=(
        RemedyStep(
            explanation="start the fabric manager; its version must be that of the driver",
            where="node {node}",
            command="systemctl status nvidia-fabricmanager; sudo systemctl restart nvidia-fabricmanager",
        ),
    ),
)
def fabric_not_ready(gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The state of the NVLink fabric by NVML, on machines with more than one GPU whose driver reports one: that it waits
    for the fabric manager, or has ended with an error. GPUs without an NVSwitch report that they have none.
    ## Why it matters
    Until the fabric manager has registered the GPU, CUDA fails with error 802, system not yet initialized, in
    every process.
    ## Check by hand
    `nvidia-smi -q | grep -A 4 Fabric`.
    ## When it is harmless
    For a minute after the machine has booted, and where a host outside of this virtual machine runs the fabric
    manager.
    """
    for node, facts in gpu.items():
        for one in facts.gpus:
            if len(facts.gpus) > 1 and one.fabric_state in {"not_started", "in_progress", "failed"}:
                yield Hit(
                    culprits=Culprits(nodes=(node,)),
                    values={"node": world.label(node), "gpu": one.index, "state": one.fabric_state or "?"},
                    evidence=(
                        stated(f"NVML GPU {one.index}", "fabric state {state}", node_rank=node, state=one.fabric_state),
                    ),
                )
