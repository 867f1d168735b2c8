"""GPU015."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.model import Culprits, FaultClass, Gpu, GpuFacts, Hit, PerNode, RemedyStep, Severity, World


@Rule(
    code="GPU015",
    severity=Severity.WARNING,
    fault_class=FaultClass.HW_HANG,
    since="0.2",
    layer=Layer.MACHINE,
    title="Some NVLinks of a GPU are down",
    message="node {node}: only {up} NVLinks of GPU {gpu} are up; another {name} of this node has {other}",
    remedy=(
        RemedyStep(
            explanation="see which links are down, and their errors",
            where="node {node}",
            command="nvidia-smi nvlink -s -i {gpu}; nvidia-smi nvlink -e -i {gpu}",
        ),
        RemedyStep(
            explanation="with no process on the node, reset its GPUs",
            where="node {node}",
            command="sudo nvidia-smi --gpu-reset",
        ),
    ),
)
def nvlink_down(gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The number of NVLinks of each GPU that are up, against other GPUs of the same model on this machine. A
    machine where no NVLink is up on any GPU has none: that is no finding.
    ## Why it matters
    NCCL takes fewer rings, or PCIe in place of NVLink; where an NVSwitch is used, CUDA may not start at all.
    ## Check by hand
    `nvidia-smi nvlink -s`.
    ## When it is harmless
    Bridges that connect some GPUs of a machine and not others on purpose.
    """
    for node, facts in gpu.items():
        for one in facts.gpus:
            if (best := _most_up(facts, one)) > 0 and sum(one.nvlinks) < best:
                yield Hit(
                    culprits=Culprits(nodes=(node,)),
                    values={
                        "node": world.label(node),
                        "gpu": one.index,
                        "up": sum(one.nvlinks),
                        "other": best,
                        "name": one.name,
                    },
                    evidence=(
                        stated(
                            f"NVML GPU {one.index}",
                            "{up} of {all} links are up",
                            node_rank=node,
                            up=sum(one.nvlinks),
                            all=len(one.nvlinks),
                        ),
                    ),
                )


def _most_up(facts: GpuFacts, gpu: Gpu) -> int:
    """The links of the other GPU of this model that has most of them up."""
    return max((sum(o.nvlinks) for o in facts.gpus if o.index != gpu.index and o.name == gpu.name), default=0)
