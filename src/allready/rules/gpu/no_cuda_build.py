"""GPU008."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import Culprits, Evidence, FaultClass, Hit, LaunchFacts, PerNode, Severity, SoftwareFacts, World


@Rule(
    code="GPU008",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.READINESS,
    title="NCCL is asked for, but torch is a CPU build",
    message="node {node}: NCCL is asked for, but torch {version} is built without CUDA",
    remedy="install a CUDA build of torch on node {node} (https://pytorch.org/get-started/locally/), in the "
    "environment that the job uses; without GPUs: --backend gloo",
)
def no_cuda_build(software: PerNode[SoftwareFacts], launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether torch says of itself that it is a CPU build (version ending in +cpu) on a node where the backend is nccl.
    ## Why it matters
    `init_process_group("nccl")` ends at once on that node ("Distributed package doesn't have NCCL built in"), and the
    other nodes wait for it.
    ## Check by hand
    `python -c 'import torch; print(torch.__version__, torch.version.cuda)'` with the Python that the job uses.
    ## When it is harmless
    Never with NCCL.  With `--backend gloo` nothing is said.
    """
    for node, facts in software.items():
        version = facts.versions.get("torch", "")
        if launch[node].backend != "nccl" or "+cpu" not in version or "torch-cuda" in facts.versions:
            continue
        yield Hit(
            culprits=Culprits(nodes=(node,)),
            values={"node": world.label(node), "version": version},
            evidence=(Evidence(source="torch", node_rank=node, text=version),),
        )
