from collections.abc import Iterator, Mapping

from msgspec import Struct

from allready import model
from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import gpu_index, grouped, on_nodes, seen, used_gpus, wants_nccl


class _Twice(Struct, frozen=True):
    gpu: str
    by: str
    nodes: tuple[int, ...]
    variables: tuple[str, ...] = ()


@Rule(
    code="GPU004",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    explains=("GPU002",),
    title="Two ranks are assigned the same GPU",
    message="GPU {gpu} is assigned to two ranks: {by}",
    remedy=(
        model.RemedyStep(
            explanation="name every GPU once; their UUIDs are listed by", where="node {nodes}", command="nvidia-smi -L"
        ),
        model.RemedyStep(
            explanation="two nodes on one machine need different ones: --devices 0,1 for the first, --devices 2,3 for "
            "the second"
        ),
    ),
)
def same_gpu_twice(
    gpu: model.PerNode[model.GpuFacts], launch: model.PerNode[model.LaunchFacts], case: Analysis
) -> Iterator[model.Hit]:
    """
    ## What it checks
    Whether --devices or CUDA_VISIBLE_DEVICES names a GPU twice (by index or UUID), and whether ranks of two nodes (two
    containers of one machine) would use the GPU with the same UUID. Only where NCCL is used, and not when
    NCCL_MULTI_RANK_GPU_ENABLE=1 permits it. Nodes with different values of NCCL_HOSTID share a GPU on purpose: NCCL
    takes them for two machines.
    ## Why it matters
    NCCL refuses to start: "Duplicate GPU detected", or "Multiple ranks are using the same GPU" since 2.30. A double
    entry in CUDA_VISIBLE_DEVICES makes CUDA hide all GPUs.
    ## Check by hand
    `echo $CUDA_VISIBLE_DEVICES; nvidia-smi -L` on each node, and compare the UUIDs.
    ## When it is harmless
    Never with NCCL; for tests on one GPU use `--backend gloo`.
    """
    env = case.facts(model.EnvFacts)
    allowed = {n for n, facts in env.items() if facts.variables.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"}
    # A double entry hides all GPUs, so what would choose NCCL by itself no longer does: only "gloo" clears it.
    asked = [n for n in gpu if launch[n].backend != "gloo" and n not in allowed]
    nccl = [n for n in asked if wants_nccl(n, launch, gpu) and "MIG-" not in (gpu[n].visible_devices or "")]
    hosts = {n: facts.variables.get("NCCL_HOSTID", "") for n, facts in env.items()}
    for found in [*_inside_nodes(asked, gpu, launch), *_between_nodes(nccl, gpu, launch, case.world, hosts)]:
        yield model.Hit(
            culprits=model.Culprits(nodes=found.nodes, variables=found.variables),
            values={"gpu": found.gpu, "by": found.by, "nodes": on_nodes(case.world, found.nodes)},
            evidence=seen(
                "NVML",
                {
                    n: said(
                        "CUDA_VISIBLE_DEVICES={visible}, --devices {devices}; {gpus}",
                        visible=gpu[n].visible_devices,
                        devices=",".join(launch[n].devices),
                        gpus=", ".join(f"{g.index} {g.uuid}" for g in gpu[n].gpus[:16]),
                    )
                    for n in found.nodes
                },
            ),
        )


def _inside_nodes(
    nodes: list[int], gpu: model.PerNode[model.GpuFacts], launch: model.PerNode[model.LaunchFacts]
) -> Iterator[_Twice]:
    for node in nodes:
        # --devices is the launcher's own choice; without it the variable decides.
        devices = launch[node].devices
        name = "--devices" if devices else "CUDA_VISIBLE_DEVICES"
        tokens = list(devices) or (gpu[node].visible_devices or "").split(",")
        known: set[object] = set()
        for token in (t.strip() for t in tokens if t.strip()):
            place = gpu_index(token, gpu[node])
            key = token if place is None else place
            if key in known:
                yield _Twice(token, f"{name} {','.join(tokens)}", (node,), () if devices else (name,))
                break
            known.add(key)


def _between_nodes(
    nodes: list[int],
    gpu: model.PerNode[model.GpuFacts],
    launch: model.PerNode[model.LaunchFacts],
    world: model.World,
    hosts: Mapping[int, str],
) -> Iterator[_Twice]:
    """hosts: node -> NCCL_HOSTID; NCCL looks for a GPU that is used twice among the ranks of one host only."""
    used = {n: set(used_gpus(launch[n], gpu[n])) for n in nodes}
    owners = grouped(
        ((g.uuid, hosts.get(n, "")), n) for n in nodes for g in gpu[n].gpus if g.index in used[n] and g.uuid
    )
    together: dict[tuple[int, ...], list[str]] = {}
    for (uuid, _), sharing in owners.items():
        if len(sharing) > 1:
            together.setdefault(sharing, []).append(uuid)
    for sharing, uuids in together.items():
        yield _Twice(", ".join(uuids[:4]), world.labels(sharing), sharing)
