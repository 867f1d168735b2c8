"""How many GPUs a node has for its ranks, and which rank has which."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from allready import model
from allready.judging.analysis import Analysis
from allready.judging.majority import Split
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said, stated
from allready.judging.values import gpu_index, grouped, on_nodes, seen, used_gpus, wants_nccl
from allready.model import Culprits, FaultClass, GpuFacts, Hit, LaunchFacts, PerNode, RemedyStep, Severity, World


@Rule(
    code="GPU003",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="Nodes with the same GPU model have different numbers of GPUs",
    message="the number of {model} GPUs differs between nodes: {split}",
    remedy=(
        RemedyStep(
            explanation="find out why GPUs are missing (Xid 79: fallen off the bus)",
            where="node {nodes}",
            command="nvidia-smi -L; dmesg | grep -iE 'xid|nvrm'; lspci | grep -i nvidia",
        ),
        RemedyStep(explanation="a GPU that lspci shows and nvidia-smi does not needs a reset or a reboot"),
    ),
)
def gpu_count_differs(gpu: PerNode[GpuFacts], launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The number of GPUs that the driver shows, before CUDA_VISIBLE_DEVICES, in a job whose GPUs are all of one model and
    whose backend is not Gloo. A node without any counts as 0.
    ## Why it matters
    A GPU that fell off the bus makes a node smaller than its peers; with the same --nproc-per-node everywhere the job
    does not start there. Without --backend, one node without GPUs makes the whole job use Gloo on its CPUs.
    ## Check by hand
    `nvidia-smi -L | wc -l` on each node.
    ## When it is harmless
    When the scheduler gave this job different shares of equal machines.
    """
    used = {node: facts.gpus for node, facts in gpu.items() if launch[node].backend != "gloo"}
    counts = {node: len(gpus) for node, gpus in used.items()}
    models = {g.name for gpus in used.values() for g in gpus}
    split = Split.by(counts, num_members=len(counts) + world.num_nodes - len(gpu))
    if len(split) < 2 or len(models) != 1:
        return
    most = max(counts.values())
    yield Hit(
        culprits=Culprits(nodes=tuple(n for n in split.outliers() if counts[n] < most)),
        values={
            "split": split,
            "model": models.pop(),
            "nodes": on_nodes(world, [n for n, count in counts.items() if count < most]),
        },
        evidence=seen(
            "NVML", {n: said("node {node}: {num} GPUs", node=world.label(n), num=num) for n, num in counts.items()}
        ),
    )


@Rule(
    code="GPU002",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="More ranks than GPUs on a node",
    message="node {node}: {nproc} NCCL ranks have only {num_gpus} GPUs ({limited_by})",
    remedy=(
        RemedyStep(
            explanation="give the ranks more GPUs: docker run --gpus all, Slurm: --gpus-per-node={nproc}, or",
            where="node {node}",
            command="unset CUDA_VISIBLE_DEVICES",
        ),
        RemedyStep(explanation="or start fewer ranks: --nproc-per-node {num_gpus}", where="node {node}"),
        RemedyStep(
            explanation="if fewer GPUs are listed than are installed, the kernel log has the reason",
            where="node {node}",
            command="nvidia-smi -L; dmesg | grep -i xid",
        ),
    ),
)
def too_few_gpus(gpu: PerNode[GpuFacts], launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    That every rank of a node has a GPU of its own when NCCL is used: nproc-per-node against the GPUs that --devices and
    CUDA_VISIBLE_DEVICES leave. Nodes without a driver are left to GPU005.
    ## Why it matters
    The surplus ranks end with "invalid device ordinal", or share a GPU, which NCCL refuses ("Duplicate GPU detected").
    ## Check by hand
    `nvidia-smi -L | wc -l` and `echo $CUDA_VISIBLE_DEVICES` under the launcher.
    ## When it is harmless
    Never with NCCL; ranks that only use the CPU need `--backend gloo`.
    """
    for node, facts in gpu.items():
        job = launch[node]
        num_gpus = len(job.devices or facts.visible)
        if facts.driver_version is None or job.nproc_per_node <= num_gpus or not wants_nccl(node, launch, gpu):
            continue
        limited_by = f"NVML: {len(facts.gpus)}"
        if job.devices:
            limited_by = f"--devices {','.join(job.devices)}"
        elif facts.visible_devices is not None:
            limited_by = f"CUDA_VISIBLE_DEVICES={facts.visible_devices}"
        text = said(
            "{num} GPUs, visible {visible}, driver {driver}",
            num=len(facts.gpus),
            visible=list(facts.visible),
            driver=facts.driver_version,
        )
        yield Hit(
            culprits=Culprits(nodes=(node,)),
            values={
                "node": world.label(node),
                "nproc": job.nproc_per_node,
                "num_gpus": num_gpus,
                "limited_by": limited_by,
            },
            evidence=seen("NVML", {node: text}),
        )


@Rule(
    code="GPU017",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.MACHINE,
    title="MIG is on and the GPU has no instance",
    message="node {node}: GPU {gpu} is in MIG mode and has no instance, so no process can use it",
    remedy=(
        RemedyStep(
            explanation="create instances", where="node {node}", command="sudo nvidia-smi mig -i {gpu} -cgi 0 -C"
        ),
        RemedyStep(
            explanation="or switch MIG off, with no process on the GPU",
            where="node {node}",
            command="sudo nvidia-smi -i {gpu} -mig 0",
        ),
    ),
)
def mig_without_instance(gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether a GPU is in MIG mode without any instance. A GPU with instances is no finding, nor is one that this
    job does not use by CUDA_VISIBLE_DEVICES.
    ## Why it matters
    CUDA finds no device on it: the rank ends with "no CUDA-capable device is detected", and the others wait.
    ## Check by hand
    `nvidia-smi -L`; `nvidia-smi mig -lgi`.
    ## When it is harmless
    On a machine whose instances are made when a job starts, by the scheduler.
    """
    for node, facts in gpu.items():
        for one in facts.gpus:
            if one.is_mig and one.num_mig == 0 and one.index in facts.visible:
                yield Hit(
                    culprits=Culprits(nodes=(node,)),
                    values={"node": world.label(node), "gpu": one.index, "name": one.name},
                    evidence=(stated(f"NVML GPU {one.index}", "MIG enabled, 0 instances", node_rank=node),),
                )


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
