"""GPU013."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, GpuFacts, Hit, PerNode, RemedyStep, Severity, World


@Rule(
    code="GPU013",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMP,
    since="0.2",
    layer=Layer.MACHINE,
    title="A GPU is throttled by temperature or power",
    message="node {node}: GPU {gpu} is throttled now: {reasons}",
    remedy=(
        RemedyStep(
            explanation="read temperature, fans and power",
            where="node {node}",
            command="nvidia-smi -q -i {gpu} -d PERFORMANCE,TEMPERATURE,POWER",
        ),
    ),
)
def clocks_lowered(gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Why each GPU runs below its clocks at this moment, by NVML: hardware slowdown, heat, power brake. Idleness
    and the power cap, under which a busy GPU always runs, are no finding.
    ## Why it matters
    The rank on this GPU computes more slowly, often by half, and all others wait for it in every step.
    ## Check by hand
    `nvidia-smi -q -d PERFORMANCE`, several times while the GPU works.
    ## When it is harmless
    When it was for a moment only: ask again.
    """
    for node, facts in gpu.items():
        for one in facts.gpus:
            if one.slowdowns:
                yield Hit(
                    culprits=Culprits(nodes=(node,)),
                    values={"node": world.label(node), "gpu": one.index, "reasons": ", ".join(one.slowdowns)},
                    evidence=seen(f"NVML GPU {one.index}", {node: ", ".join(one.slowdowns)}),
                )
