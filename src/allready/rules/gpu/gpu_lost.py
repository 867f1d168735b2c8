"""GPU025."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import listed, seen
from allready.model import Culprits, FaultClass, GpuFacts, Hit, PerNode, RemedyStep, Severity, World


@Rule(
    code="GPU025",
    severity=Severity.ERROR,
    fault_class=FaultClass.HW_HANG,
    since="0.2",
    layer=Layer.MACHINE,
    title="A GPU does not answer its driver",
    message="node {node}: GPU {gpus} does not answer the driver ({words}); {count} others of this machine do",
    remedy=(
        RemedyStep(
            explanation="the kernel log has the reason, mostly Xid 79",
            where="node {node}",
            command="sudo dmesg -T | grep -i -e xid -e nvrm | tail -20",
        ),
        RemedyStep(
            explanation="with no process on the machine, reset its GPUs; if that fails, switch the machine off and on",
            where="node {node}",
            command="sudo nvidia-smi --gpu-reset",
        ),
    ),
)
def gpu_lost(gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    GPUs that the driver lists and about which NVML gives an error in place of an answer, on a machine where others
    answer.
    ## Why it matters
    The rank on this GPU cannot start, or hangs in its first call; with CUDA_VISIBLE_DEVICES unset CUDA may find no
    GPU at all. All other ranks wait.
    ## Check by hand
    `nvidia-smi` prints "GPU is lost" or "Unable to determine the device handle".
    ## When it is harmless
    While this GPU is being reset.
    """
    for node, facts in gpu.items():
        if facts.lost:
            shown = tuple(said("GPU {gpu}: {words}", gpu=gpu, words=words) for gpu, words in sorted(facts.lost.items()))
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "gpus": ", ".join(str(index) for index in sorted(facts.lost)),
                    "words": listed(list(dict.fromkeys(facts.lost.values())), 2, "; "),
                    "count": len(facts.gpus),
                },
                evidence=seen("NVML", {node: shown}),
            )
