from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.signs import Sign
from allready.model import EnvFacts, FaultClass, GpuFacts, Hit, PerNode, RemedyStep, Severity
from allready.rules.env._variables import is_on, set_hit

NAME = "CUDA_LAUNCH_BLOCKING"


@Rule(
    code="ENV008",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    unless=(Sign.LINTED,),
    title="CUDA_LAUNCH_BLOCKING is set",
    message="CUDA_LAUNCH_BLOCKING={value} on node {nodes}: every kernel launch blocks until the kernel ends, so "
    "computation and communication no longer overlap",
    remedy=RemedyStep(
        explanation="unset it, unless you are searching for the kernel that fails",
        where="node {nodes}",
        command="unset CUDA_LAUNCH_BLOCKING",
    ),
)
def launch_blocking_left_on(env: PerNode[EnvFacts], case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    Whether CUDA_LAUNCH_BLOCKING is set on a node with GPUs.
    ## Why it matters
    It is a debugging aid. Training with it is commonly ten per cent to several times slower, and with several NCCL
    communicators in one process it can deadlock: a collective waits for another that cannot be launched.
    ## Check by hand
    `echo "$CUDA_LAUNCH_BLOCKING"`
    ## When it is harmless
    While you are searching for the kernel behind an asynchronous CUDA error.
    """
    gpu = case.facts(GpuFacts)
    on = {
        n: f.variables[NAME]
        for n, f in env.items()
        if is_on(f.variables.get(NAME)) and (n not in gpu or gpu[n].visible)
    }
    texts = {n: f"{NAME}={value}" for n, value in on.items()}
    yield from set_hit(case, env, NAME, texts, value=next(iter(on.values()), "").strip())
