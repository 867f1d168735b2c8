"""ENV005."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.majority import Split
from allready.judging.node_split import brief, some
from allready.judging.registry import Rule
from allready.model import Culprits, Evidence, FaultClass, Hit, HostFacts, PerNode, Severity


@Rule(
    code="ENV005",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.READINESS,
    title="Nodes run different kernels",
    message="the kernel differs between nodes: {split}",
    remedy="nothing, unless only these nodes make trouble; to compare: uname -r",
)
def kernel_differs(host: PerNode[HostFacts]) -> Iterator[Hit]:
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
    split = Split.by(kernels)
    if len(split) < 2:
        return
    outliers = split.outliers()
    yield Hit(
        culprits=Culprits(nodes=outliers),
        values={"split": brief(split)},
        evidence=tuple(Evidence(source="uname -r", text=kernels[n], node_rank=n) for n in some(kernels, outliers)),
    )
