"""ENV009."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.judging.values import on_nodes
from allready.model import Culprits, EnvFacts, Evidence, FaultClass, Hit, PerNode, Severity, World

NAME = "TORCH_DISTRIBUTED_DEBUG"


@Rule(
    code="ENV009",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.READINESS,
    title="TORCH_DISTRIBUTED_DEBUG=DETAIL is on",
    message="TORCH_DISTRIBUTED_DEBUG=DETAIL on node {nodes}: before each collective all ranks first compare "
    "what they are about to do, over Gloo",
    remedy="unset TORCH_DISTRIBUTED_DEBUG (or INFO), unless you are looking for a desync",
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
    While you are looking for ranks that issue different collectives: that is what it is for.
    """
    on = tuple(n for n, f in env.items() if f.variables.get(NAME, "").strip().upper() == "DETAIL")
    if on:
        yield Hit(
            culprits=Culprits(nodes=on if len(on) < len(env) else (), variables=(NAME,)),
            values={"nodes": on_nodes(world, on)},
            evidence=tuple(Evidence(source="environment", text=f"{NAME}=DETAIL", node_rank=n) for n in on[:8]),
        )
