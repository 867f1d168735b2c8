import re
from collections.abc import Iterator, Mapping

from allready.judging.analysis import Analysis
from allready.judging.majority import Split
from allready.judging.node_split import assign, cut, differing, unset
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import said
from allready.judging.values import nccl_nodes, on_nodes, seen
from allready.model import (
    Culprits,
    EnvFacts,
    FaultClass,
    GpuFacts,
    Hit,
    LaunchFacts,
    PerNode,
    RemedyStep,
    Severity,
    SoftwareFacts,
    World,
)
from allready.rules.env._variables import comparable, severity_of


@Rule(
    code="ENV006",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    title="Nodes have different GPU models",
    message="GPU models differ between nodes: {split}",
    remedy=RemedyStep(
        explanation="use nodes of one kind; if the mixture is intentional, size batches for the smallest memory and "
        "expect the pace of the slowest",
        where="every node",
        command="nvidia-smi -L",
    ),
)
def gpu_model_differs(gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Which GPU models the job may use on each node. Their number is left to GPU003, and nodes without any are left out.
    ## Why it matters
    Every step waits for the slowest GPU, and the one with the least memory runs out first. NCCL builds its rings for
    the weakest link.
    ## Check by hand
    `nvidia-smi -L` on every node.
    ## When it is harmless
    When the mixture is intentional and the work is divided accordingly.
    """
    models = {n: " + ".join(sorted({g.name for g in f.gpus if g.index in f.visible})) for n, f in gpu.items()}
    shown = {n: names for n, names in models.items() if names}
    num_without = len(models) - len(shown)
    yield from differing(shown, "NVML", num_nodes=world.num_nodes - num_without)


PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin")


@Rule(
    code="ENV017",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.ENVIRONMENT,
    applies=Applies.FACTS,
    title="JAX's CUDA plugin does not fit jaxlib",
    message="node {node}: {plugin} {version} is installed beside jaxlib {jaxlib}; JAX does not use it and "
    "computes on the CPU",
    remedy=(
        RemedyStep(
            explanation="install the same release of both",
            where="node {node}",
            command="python -m pip install -U 'jax[{extra}]=={jax}'",
        ),
    ),
)
def jax_plugin_differs(software: PerNode[SoftwareFacts], gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    On nodes with GPUs: the versions of jaxlib and of its CUDA plugin (jax-cuda12-plugin, jax-cuda13-plugin), of
    which all but what follows a plus must be equal. A node without the plugin is no finding: JAX may not be
    what uses the GPUs.
    ## Why it matters
    JAX warns that the plugin is not compatible, takes the CPU in its place, and the process of this node sees
    another number of devices than the others.
    ## Check by hand
    `pip list | grep -i jax`; `python -c 'import jax; print(jax.devices())'`.
    ## When it is harmless
    Where the job uses JAX on the CPU only.
    """
    for node, facts in software.items():
        jaxlib = facts.versions.get("jaxlib")
        found = {name: facts.versions[name] for name in PLUGINS if name in facts.versions}
        if jaxlib is None or not gpu[node].visible or any(_release(v) == _release(jaxlib) for v in found.values()):
            continue
        for plugin, version in found.items():
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "plugin": plugin,
                    "version": version,
                    "jaxlib": jaxlib,
                    "jax": facts.versions.get("jax", jaxlib),
                    "extra": plugin.split("-")[1],
                },
                evidence=seen(
                    "installed packages",
                    {node: said("jaxlib {jaxlib}, {plugin} {version}", jaxlib=jaxlib, plugin=plugin, version=version)},
                ),
            )


def _release(version: str) -> str:
    return version.partition("+")[0].partition(".post")[0]


MAX_HITS = 64


@Rule(
    code="ENV002",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    title="A variable differs between nodes",
    message="{name} differs between nodes: {split}",
    remedy=RemedyStep(
        explanation="set {name} to the same value on every node before the job starts",
        where="node {nodes}",
        command="{command}",
    ),
)
def variable_differs(env: PerNode[EnvFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The values of all variables that PyTorch, NCCL, Gloo, CUDA, JAX and XLA read, and whether they are set at all, node
    by node. It is an error for those on which all ranks must agree (algorithms, protocols, channels, transports, NCCL
    plugins, XLA_FLAGS, TORCH_NCCL_..., TORCH_DISTRIBUTED_DEBUG) and a warning for others. Variables that belong to one
    node (interface and device names, CUDA_VISIBLE_DEVICES, files and folders, numbers of threads, log levels, ranks)
    may differ. The order of XLA_FLAGS does not matter.
    ## Why it matters
    Ranks that choose different algorithms or protocols wait for messages that never come, or misread a buffer: a hang
    at the first collective, "message truncated", or wrong numbers. Launchers that start over ssh, and files that only
    an interactive shell reads, leave variables unset on the other nodes.
    ## Check by hand
    `env | grep -E "^(NCCL|TORCH|GLOO|XLA|JAX|CUDA)_" | sort` on every node, in the job's own environment; also
    /etc/nccl.conf and ~/.nccl.conf, which NCCL reads too.
    ## When it is harmless
    When the variable belongs to a library that the job does not use.
    """
    values: dict[str, dict[int, str]] = {}
    for node, facts in env.items():
        for name, value in facts.variables.items():
            values.setdefault(name, {})[node] = comparable(name, value)
    differing_names = [
        (severity, name)
        for name, found in values.items()
        if (severity := severity_of(name)) is not None and (len(found) < len(env) or len(set(found.values())) > 1)
    ]
    differing_names.sort(key=lambda item: (-item[0].weight, item[1]))
    for severity, name in differing_names[:MAX_HITS]:
        found = {node: values[name].get(node) for node in env}
        split = Split.by(found, num_members=world.num_nodes)
        odd = split.outliers()
        wanted = split.groups[:1] if odd else split.groups[:3]
        yield from differing(
            found,
            "environment",
            num_nodes=world.num_nodes,
            texts={
                n: said("{name}=(unset)", name=name) if value is None else f"{name}={cut([value], 400)[0]}"
                for n, value in found.items()
            },
            without=unset,
            severity=severity,
            variables=(name,),
            name=name,
            nodes=on_nodes(world, odd or tuple(env)),
            command=" | ".join(assign(name, value) for value, _ in wanted),
        )


DRIVER = "nvidia-driver"
ALWAYS = {"python": Severity.ERROR, DRIVER: Severity.WARNING, "numpy": Severity.INFO, "allready": Severity.INFO}
OF_FRAMEWORK = {
    "torch": {"torch": Severity.ERROR, "torch-cuda": Severity.ERROR, "torch-hip": Severity.ERROR},
    "jax": {"jax": Severity.ERROR, "jaxlib": Severity.ERROR},
}
COMPARE = {
    "python": "python -V",
    "nccl": "python -c 'import torch; print(torch.cuda.nccl.version())'",
    "torch-cuda": "python -c 'import torch; print(torch.version.cuda)'",
    DRIVER: "nvidia-smi --query-gpu=driver_version --format=csv,noheader",
}


@Rule(
    code="ENV001",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    title="Nodes have different versions",
    message="the version of {name} differs between nodes: {split}",
    remedy=RemedyStep(
        explanation="install the same {name} on every node ({target}); to compare",
        where="every node",
        command="{command}",
    ),
)
def version_differs(software: PerNode[SoftwareFacts], case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    The versions of Python, PyTorch and the CUDA it was built for, NCCL, JAX and jaxlib, NumPy, and of the NVIDIA
    driver, and that what some nodes have installed is not missing on others. Different NCCL versions stop a job that
    uses NCCL; different versions of the framework in use, or of Python up to the minor number, are errors; a patch
    level of Python, the driver and a major version of NumPy are warnings; the rest is information.
    ## Why it matters
    NCCL compares versions when a communicator is created and refuses. PyTorch and JAX do not: other defaults, other
    bucket sizes or another compiled program on one node desynchronize the collectives, which then hang or compute wrong
    numbers. Pickled objects of another Python or NumPy cannot be read.
    ## Check by hand
    `python -c 'import torch; print(torch.__version__, torch.version.cuda, torch.cuda.nccl.version())'` on every node,
    in the same virtual environment or container in which the job runs.
    ## When it is harmless
    When the package is not used by the job; a driver that differs, as long as it supports the CUDA of the framework.
    """
    launch, gpu = case.facts(LaunchFacts), case.facts(GpuFacts)
    for name in sorted({name for facts in software.values() for name in facts.versions}):
        versions = {node: facts.versions.get(name) or None for node, facts in software.items()}
        yield from _compare(name, versions, _severity(name, versions, launch, gpu), case.world.num_nodes)
    drivers = {node: facts.driver_version for node, facts in gpu.items() if facts.driver_version}
    num_without = sum(not facts.driver_version for facts in gpu.values())
    yield from _compare(DRIVER, drivers, ALWAYS[DRIVER], case.world.num_nodes - num_without)


def _compare(name: str, versions: Mapping[int, str | None], severity: Severity, num_nodes: int) -> Iterator[Hit]:
    split = Split.by(versions, num_members=num_nodes)
    candidates = [v for v, _ in split.groups if v is not None]
    is_clear = split.outliers() and split.groups[0][0] is not None
    yield from differing(
        versions,
        name,
        num_nodes=num_nodes,
        severity=severity,
        variables=(name,),
        texts={n: said("(missing)") if version is None else version for n, version in versions.items()},
        name=name,
        target=candidates[0] if is_clear else " | ".join(candidates[:3]),
        command=COMPARE.get(name, f"python -m pip show {name}"),
    )


def _severity(
    name: str, versions: Mapping[int, str | None], launch: PerNode[LaunchFacts], gpu: PerNode[GpuFacts]
) -> Severity:
    if name == "nccl":
        return Severity.BLOCKER if nccl_nodes(versions, launch, gpu) else Severity.WARNING
    if name in {"python", "numpy"}:
        parts = 2 if name == "python" else 1
        coarse = {v and tuple(re.split(r"[.+]", v)[:parts]) for v in versions.values()}
        differs, same = (Severity.ERROR, Severity.WARNING) if name == "python" else (Severity.WARNING, Severity.INFO)
        return differs if len(coarse) > 1 else same
    frameworks = {job.framework for job in launch.values()} or {"torch"}
    return next(
        (table[name] for f, table in OF_FRAMEWORK.items() if f in frameworks and name in table),
        ALWAYS.get(name, Severity.INFO),
    )
