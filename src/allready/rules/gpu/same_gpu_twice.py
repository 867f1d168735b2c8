"""GPU004."""

from collections.abc import Iterator

from msgspec import Struct

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.judging.values import gpu_index, used_gpus, wants_nccl
from allready.model import (
    Culprits,
    EnvFacts,
    Evidence,
    FaultClass,
    GpuFacts,
    Hit,
    LaunchFacts,
    PerNode,
    Severity,
    World,
)


class _Twice(Struct, frozen=True):
    gpu: str
    by: str
    nodes: tuple[int, ...]
    variables: tuple[str, ...] = ()


@Rule(
    code="GPU004",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.READINESS,
    explains=("GPU002",),
    title="The same GPU is given to two ranks",
    message="GPU {gpu} is given out twice: {by}",
    remedy="name every GPU once: nvidia-smi -L lists them with their UUIDs; two nodes on one machine need different "
    "ones: --devices 0,1 for the first, --devices 2,3 for the second",
)
def same_gpu_twice(
    gpu: PerNode[GpuFacts],
    launch: PerNode[LaunchFacts],
    world: World,
    env: PerNode[EnvFacts] | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    Whether --devices or CUDA_VISIBLE_DEVICES names a GPU twice (by index or UUID), and whether ranks of two nodes (two
    containers of one machine) would take the GPU with the same UUID.  Only where NCCL is used, and not when
    NCCL_MULTI_RANK_GPU_ENABLE=1 asks for it.
    ## Why it matters
    NCCL refuses to start: "Duplicate GPU detected", or "Multiple ranks are using the same GPU" since 2.30.  A double
    entry in CUDA_VISIBLE_DEVICES makes CUDA hide all GPUs.
    ## Check by hand
    `echo $CUDA_VISIBLE_DEVICES; nvidia-smi -L` on each node, and compare the UUIDs.
    ## When it is harmless
    Never with NCCL; for tests on one GPU use `--backend gloo`.
    """
    # A double entry hides all GPUs, so what would choose NCCL by itself no longer does: only "gloo" clears it.
    asked = [n for n in gpu if launch[n].backend != "gloo" and not _is_allowed(env.get(n) if env else None)]
    nccl = [n for n in asked if wants_nccl(n, launch, gpu) and "MIG-" not in (gpu[n].visible_devices or "")]
    for found in [*_inside_nodes(asked, gpu, launch), *_between_nodes(nccl, gpu, launch, world)]:
        yield Hit(
            culprits=Culprits(nodes=found.nodes, variables=found.variables),
            values={"gpu": found.gpu, "by": found.by},
            evidence=tuple(
                Evidence(
                    source="NVML",
                    node_rank=n,
                    text=f"CUDA_VISIBLE_DEVICES={gpu[n].visible_devices}, --devices {','.join(launch[n].devices)}; "
                    + ", ".join(f"{g.index} {g.uuid}" for g in gpu[n].gpus[:16]),
                )
                for n in found.nodes
            ),
        )


def _is_allowed(env: EnvFacts | None) -> bool:
    return env is not None and env.variables.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"


def _inside_nodes(nodes: list[int], gpu: PerNode[GpuFacts], launch: PerNode[LaunchFacts]) -> Iterator[_Twice]:
    for node in nodes:
        lists = {"--devices": list(launch[node].devices)}
        # --devices is the launcher's own wish; without it the variable decides.
        if not launch[node].devices:
            lists = {"CUDA_VISIBLE_DEVICES": (gpu[node].visible_devices or "").split(",")}
        for name, tokens in lists.items():
            seen: set[object] = set()
            for token in (t.strip() for t in tokens if t.strip()):
                place = gpu_index(token, gpu[node])
                key = token if place is None else place
                if key in seen:
                    variables = (name,) if name == "CUDA_VISIBLE_DEVICES" else ()
                    yield _Twice(token, f"{name} {','.join(tokens)}", (node,), variables)
                    break
                seen.add(key)


def _between_nodes(
    nodes: list[int], gpu: PerNode[GpuFacts], launch: PerNode[LaunchFacts], world: World
) -> Iterator[_Twice]:
    owners: dict[str, list[int]] = {}
    for node in nodes:
        used = set(used_gpus(launch[node], gpu[node]))
        for g in gpu[node].gpus:
            if g.index in used and g.uuid:
                owners.setdefault(g.uuid, []).append(node)
    together: dict[tuple[int, ...], list[str]] = {}
    for uuid, sharing in owners.items():
        if len(sharing) > 1:
            together.setdefault(tuple(sharing), []).append(uuid)
    for sharing_nodes, uuids in together.items():
        yield _Twice(", ".join(uuids[:4]), world.labels(sharing_nodes), sharing_nodes)
