"""ENV014."""

from collections.abc import Iterator

from allready.judging.registry import Applies, Layer, Rule
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, Hit, ImportFacts, PerNode, RemedyStep, Severity, World


@Rule(
    code="ENV014",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.ENVIRONMENT,
    applies=Applies.FACTS,
    title="torch loads another NCCL than it was built with",
    message="node {node}: torch[[ {torch}]] was built with NCCL {built} and loads NCCL {loaded}[[ from {path}]]",
    remedy=(
        RemedyStep(
            explanation="see what puts it in front",
            where="node {node}",
            command="env | grep -E '^LD_(LIBRARY_PATH|PRELOAD)='; ldconfig -p | grep nccl; pip list | grep -i nccl",
        ),
        RemedyStep(
            explanation="remove it from the path, or reinstall torch so that its own NCCL comes with it",
            where="node {node}",
        ),
    ),
)
def second_nccl(imports: PerNode[ImportFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The release of NCCL that torch was compiled with (`torch.cuda.nccl.version()`) against the one that the library
    loaded into the process says it is. Both are asked in a process that imports torch and ends.
    ## Why it matters
    A second libnccl.so.2, of the operating system, of a CUDA container or of another wheel, that LD_LIBRARY_PATH or
    LD_PRELOAD puts in front, decides what the job runs with. Nodes with different paths then do not fit together
    ("NCCL version mismatch" or a hang in the bootstrap), and known bugs seem to be fixed that are not.
    ## Check by hand
    `NCCL_DEBUG=VERSION` prints the release that is loaded; `grep libnccl /proc/PID/maps` its path.
    ## When it is harmless
    When a newer NCCL of the same major version was put there on purpose, on all nodes.
    """
    for node, facts in imports.items():
        for one in facts.modules:
            built, loaded = one.versions.get("nccl-built"), one.versions.get("nccl-loaded")
            if built and loaded and built != loaded:
                yield Hit(
                    culprits=Culprits(nodes=(node,)),
                    values={
                        "node": world.label(node),
                        "torch": one.versions.get("torch", None),
                        "built": built,
                        "loaded": loaded,
                        "path": one.libraries[0] if one.libraries else None,
                    },
                    evidence=seen("/proc/self/maps after import torch", {node: ", ".join(one.libraries[:4])}),
                )
