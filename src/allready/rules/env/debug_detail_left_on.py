from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.signs import Sign
from allready.model import EnvFacts, FaultClass, Hit, PerNode, RemedyStep, Severity
from allready.rules.env._variables import set_hit

NAME = "TORCH_DISTRIBUTED_DEBUG"


@Rule(
    code="ENV009",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    unless=(Sign.LINTED,),
    title="TORCH_DISTRIBUTED_DEBUG=DETAIL is set",
    message="TORCH_DISTRIBUTED_DEBUG=DETAIL on node {nodes}: before each collective all ranks compare their calls over "
    "Gloo",
    remedy=RemedyStep(
        explanation="unset it (or set INFO), unless you are debugging a desync",
        where="node {nodes}",
        command="unset TORCH_DISTRIBUTED_DEBUG",
    ),
)
def debug_detail_left_on(env: PerNode[EnvFacts], case: Analysis) -> Iterator[Hit]:
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
    on = (n for n, f in env.items() if f.variables.get(NAME, "").strip().upper() == "DETAIL")
    yield from set_hit(case, env, NAME, dict.fromkeys(on, f"{NAME}=DETAIL"))
