"""GPU017."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.model import Culprits, FaultClass, GpuFacts, Hit, PerNode, RemedyStep, Severity, World


@Rule(
    code="GPU017",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.MACHINE,
    title="MIG is on and the GPU has no instance",
    message="node {node}: GPU {gpu} is in MIG mode and has no instance, so no process can use it",
    remedy=(
        RemedyStep(
            explanation="create instances", where="node {node}", command="sudo nvidia-smi mig -i {gpu} -cgi 0 -C"
        ),
        RemedyStep(
            explanation="or switch MIG off, with no process on the GPU",
            where="node {node}",
            command="sudo nvidia-smi -i {gpu} -mig 0",
        ),
    ),
)
def mig_without_instance(gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether a GPU is in MIG mode without any instance. A GPU with instances is no finding, nor is one that this
    job does not use by CUDA_VISIBLE_DEVICES.
    ## Why it matters
    CUDA finds no device on it: the rank ends with "no CUDA-capable device is detected", and the others wait.
    ## Check by hand
    `nvidia-smi -L`; `nvidia-smi mig -lgi`.
    ## When it is harmless
    On a machine whose instances are made when a job starts, by the scheduler.
    """
    for node, facts in gpu.items():
        for one in facts.gpus:
            if one.is_mig and one.num_mig == 0 and one.index in facts.visible:
                yield Hit(
                    culprits=Culprits(nodes=(node,)),
                    values={"node": world.label(node), "gpu": one.index, "name": one.name},
                    evidence=(stated(f"NVML GPU {one.index}", "MIG enabled, 0 instances", node_rank=node),),
                )
