import re
from collections.abc import Iterator, Mapping

from allready.judging.analysis import Analysis
from allready.judging.majority import Split
from allready.judging.node_split import differing
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import said
from allready.judging.values import nccl_nodes
from allready.model import FaultClass, GpuFacts, Hit, LaunchFacts, PerNode, RemedyStep, Severity, SoftwareFacts

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
