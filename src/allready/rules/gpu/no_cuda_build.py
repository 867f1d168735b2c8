from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, Hit, LaunchFacts, PerNode, RemedyStep, Severity, SoftwareFacts, World


@Rule(
    code="GPU008",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="NCCL is requested, but torch is a CPU build",
    message="node {node}: torch {version} is built without CUDA, but the backend is nccl",
    remedy=(
        RemedyStep(
            explanation="install a CUDA build of torch in the environment that the job uses "
            "(https://pytorch.org/get-started/locally/)",
            where="node {node}",
            command="python -m pip install torch",
        ),
        RemedyStep(explanation="without GPUs: --backend gloo", where="every node"),
    ),
)
def no_cuda_build(software: PerNode[SoftwareFacts], launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether torch is a CPU build (version ending in +cpu) on a node where the backend is nccl.
    ## Why it matters
    `init_process_group("nccl")` fails at once on that node ("Distributed package doesn't have NCCL built in"), and the
    other nodes wait for it.
    ## Check by hand
    `python -c 'import torch; print(torch.__version__, torch.version.cuda)'` with the Python that the job uses.
    ## When it is harmless
    Never with NCCL. With `--backend gloo` nothing is reported.
    """
    for node, facts in software.items():
        version = facts.versions.get("torch", "")
        if launch[node].backend == "nccl" and "+cpu" in version and "torch-cuda" not in facts.versions:
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={"node": world.label(node), "version": version},
                evidence=seen("torch", {node: version}),
            )
