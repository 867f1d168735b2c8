"""ENV008."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.judging.values import on_nodes
from allready.model import Culprits, EnvFacts, Evidence, FaultClass, GpuFacts, Hit, PerNode, Severity, World
from allready.rules.env._variables import is_on

NAME = "CUDA_LAUNCH_BLOCKING"


@Rule(
    code="ENV008",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.READINESS,
    title="CUDA_LAUNCH_BLOCKING is on",
    message="CUDA_LAUNCH_BLOCKING={value} on node {nodes}: every kernel launch waits for its kernel, so that "
    "computation and communication no longer overlap",
    remedy="unset CUDA_LAUNCH_BLOCKING, unless you are looking for the kernel that fails",
)
def launch_blocking_left_on(
    env: PerNode[EnvFacts], world: World, gpu: PerNode[GpuFacts] | None = None
) -> Iterator[Hit]:
    """
    ## What it checks
    Whether CUDA_LAUNCH_BLOCKING is left on, on a node with GPUs.
    ## Why it matters
    It is a debugging aid. Training with it is commonly some ten per cent to several times slower, and with several
    NCCL communicators in one process it can deadlock: a collective waits for another that may not be launched.
    ## Check by hand
    `echo "$CUDA_LAUNCH_BLOCKING"`
    ## When it is harmless
    While you are looking for the kernel behind an asynchronous CUDA error.
    """
    on = {n: f.variables[NAME] for n, f in env.items() if is_on(f.variables.get(NAME)) and _has_gpu(n, gpu)}
    if on:
        nodes = tuple(on)
        yield Hit(
            culprits=Culprits(nodes=nodes if len(nodes) < len(env) else (), variables=(NAME,)),
            values={"value": on[nodes[0]].strip(), "nodes": on_nodes(world, nodes)},
            evidence=tuple(Evidence(source="environment", text=f"{NAME}={on[n]}", node_rank=n) for n in nodes[:8]),
        )


def _has_gpu(node: int, gpu: PerNode[GpuFacts] | None) -> bool:
    facts = gpu.get(node) if gpu else None
    return facts is None or bool(facts.visible)
