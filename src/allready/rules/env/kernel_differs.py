from collections.abc import Iterator

from allready.judging.node_split import differing
from allready.judging.registry import Applies, Layer, Rule
from allready.model import FaultClass, Hit, HostFacts, PerNode, RemedyStep, Severity, World


@Rule(
    code="ENV005",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    title="Nodes run different kernels",
    message="the kernel differs between nodes: {split}",
    remedy=RemedyStep(
        explanation="nothing, unless only these nodes have problems; to compare", where="every node", command="uname -r"
    ),
)
def kernel_differs(host: PerNode[HostFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The release of the Linux kernel on every node.
    ## Why it matters
    It is a hint, not a fault: drivers, TCP defaults and cgroup behaviour come with the kernel, so a node that alone
    runs another one is a good first suspect when it alone is slow or fails.
    ## Check by hand
    `uname -r` on every node.
    ## When it is harmless
    Nearly always.
    """
    kernels = {node: facts.kernel for node, facts in host.items()}
    yield from differing(kernels, "uname -r", num_nodes=world.num_nodes)
