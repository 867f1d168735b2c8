"""Which runs of the staged collectives a request asks for."""

from collections.abc import Mapping

from allready.messaging.channel import HubSide, Narrator
from allready.model import (
    CollectiveRun,
    Collectives,
    GpuFacts,
    LaunchFacts,
    NodeFacts,
    Reason,
    SoftwareFacts,
    UncheckedKind,
    World,
)
from allready.preflight.check.request import CheckRequest
from allready.preflight.collectives import variants
from allready.preflight.collectives.hub import conduct
from allready.preflight.collectives.spec import STAGES, RunSpec, plan_default
from allready.text.reasons import reason


def choose_backend(request: CheckRequest, facts: Mapping[int, NodeFacts]) -> str:
    """jax for --framework jax; else as asked; else nccl where every node could run it, and gloo otherwise."""
    if request.framework == "jax":
        return "jax"
    return request.backend or ("nccl" if facts and all(_has_nccl(node) for node in facts.values()) else "gloo")


def uses_nccl(request: CheckRequest, facts: Mapping[int, NodeFacts]) -> bool:
    """Whether the job will use NCCL at all: where it is asked for, or where a GPU is seen and nothing else is asked.

    Wider than `choose_backend`: where torch is not installed here, or a GPU is missing, the paths still are NCCL's.
    """
    if request.backend is not None:
        return request.backend == "nccl"
    return any(isinstance(node.gpu, GpuFacts) and node.gpu.visible for node in facts.values())


def _has_nccl(node: NodeFacts) -> bool:
    gpu, software, launch = node.gpu, node.software, node.launch
    return (
        isinstance(gpu, GpuFacts)
        and isinstance(launch, LaunchFacts)
        and len(gpu.visible) >= launch.nproc_per_node
        and isinstance(software, SoftwareFacts)
        and "torch-cuda" in software.versions
    )


def plan(request: CheckRequest, world: World, facts: Mapping[int, NodeFacts]) -> RunSpec:
    """The run of all ranks that the request asks for.

    Raises:
        UsageError: sizes or stages that make no sense together.
    """
    backend = choose_backend(request, facts)
    deadline_s = request.stage_deadline_s
    launches = {n: node.launch for n, node in facts.items() if isinstance(node.launch, LaunchFacts)}
    return plan_default(
        backend,
        world,
        request.launch.master_addr,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        iters=request.num_iterations,
        warmup=request.num_warmup,
        quick=request.quick,
        stages=_stages(request.collective_stages, backend),
        devices={n: launch.devices for n, launch in launches.items() if launch.devices},
        stage_deadline_s=dict.fromkeys(STAGES[backend], deadline_s) if deadline_s else None,
    )


def _stages(asked: tuple[str, ...], backend: str) -> tuple[str, ...] | None:
    """The backend's own names of the stages that were asked for ("small" is nccl_small, gloo_small or jax_psum)."""
    if not asked:
        return None
    own = [stage for name in asked for stage in _own_stages(name, backend)]
    return tuple(own) or STAGES[backend][:1]


def _own_stages(name: str, backend: str) -> tuple[str, ...]:
    candidates = {name, f"{backend}_{name}", *({"jax_psum"} if name in {"small", "sweep"} else ())}
    return tuple(stage for stage in STAGES[backend] if stage in candidates)


def stages_it_has_not(request: CheckRequest, backend: str) -> dict[str, Reason]:
    """Stages of the collectives that were asked for and that this backend does not have -> why."""
    return {
        name: reason(UncheckedKind.NO_SUCH_STAGE, backend=backend, stages=", ".join(STAGES[backend]))
        for name in request.collective_stages
        if not _own_stages(name, backend)
    }


async def run_collectives(hub: HubSide, request: CheckRequest, spec: RunSpec, narrator: Narrator) -> Collectives:
    """All runs: the job as asked for comes first in the answer, also after growing up to it."""
    if request.grow and spec.world_size > 1:
        grown = await variants.grow(hub, spec, narrator)
        runs: list[CollectiveRun] = [grown[-1], *grown[:-1]]
    else:
        runs = [await conduct(hub, spec, narrator)]
    if request.isolate and runs[0].bad is not None:
        runs += await variants.isolate(hub, spec, runs[0], narrator)
    return Collectives(runs=tuple(runs))
