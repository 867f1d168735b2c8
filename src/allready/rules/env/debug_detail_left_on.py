"""ENV009."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.judging.values import on_nodes, seen
from allready.model import Culprits, EnvFacts, FaultClass, Hit, PerNode, RemedyStep, Severity, World

NAME = "TORCH_DISTRIBUTED_DEBUG"


@Rule(
    code="ENV009",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.READINESS,
    title="TORCH_DISTRIBUTED_DEBUG=DETAIL is set",
    message="TORCH_DISTRIBUTED_DEBUG=DETAIL on node {nodes}: before each collective all ranks compare their calls over "
    "Gloo",
    remedy=RemedyStep(
        explanation="unset it (or set INFO), unless you are debugging a desync",
        where="node {nodes}",
        command="unset TORCH_DISTRIBUTED_DEBUG",
    ),
)
def debug_detail_left_on(env: PerNode[EnvFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether TORCH_DISTRIBUTED_DEBUG is DETAIL.
    ## Why it matters
    Every collective then costs a second one over Gloo and the CPU, which slows steps with many small collectives
    several times, and needs Gloo to work between all nodes even if the job itself uses only NCCL.
    ## Check by hand
    `echo "$TORCH_DISTRIBUTED_DEBUG"`
    ## When it is harmless
    While you are debugging ranks that issue different collectives: that is its purpose.
    """
    on = tuple(n for n, f in env.items() if f.variables.get(NAME, "").strip().upper() == "DETAIL")
    if on:
        yield Hit(
            culprits=Culprits(nodes=on if len(on) < len(env) else (), variables=(NAME,)),
            values={"nodes": on_nodes(world, on)},
            evidence=seen("environment", dict.fromkeys(on, f"{NAME}=DETAIL"), most=8),
        )
