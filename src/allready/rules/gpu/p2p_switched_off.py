"""GPU026."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import listed, seen
from allready.model import Culprits, FaultClass, GpuFacts, Hit, PerNode, RemedyStep, Severity, World

BY_SETTINGS = "disabled by the driver's settings"
"""Of `GpuPair.p2p`: NVML's P2P_STATUS_DISABLED_BY_REGKEY."""


@Rule(
    code="GPU026",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_COMM,
    since="0.2",
    layer=Layer.MACHINE,
    title="P2P between GPUs is switched off by a setting of the driver",
    message="node {node}: a setting of the driver switches P2P off between GPUs {pairs}",
    remedy=(
        RemedyStep(
            explanation="find the setting",
            where="node {node}",
            command="grep -i -e registry -e peer /proc/driver/nvidia/params; grep -r nvidia /etc/modprobe.d",
        ),
        RemedyStep(
            explanation="where it is not wanted, remove it, and load the driver again or restart the machine",
            where="node {node}",
        ),
    ),
)
def p2p_switched_off(gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Pairs of GPUs of which NVML says that P2P is disabled by the driver's settings. Pairs that cannot have it for
    another reason (chipset, topology, the GPUs themselves) are no finding: the facts of `allready doctor` show why.
    ## Why it matters
    NCCL copies between these GPUs through the host's memory, at a fraction of the speed of NVLink or PCIe.
    ## Check by hand
    `nvidia-smi topo -p2p r` shows DR for these pairs.
    ## When it is harmless
    Where it was switched off on purpose, as on hosts of confidential computing or around a fault of the bus.
    """
    for node, facts in gpu.items():
        off = [f"{pair.a}-{pair.b}" for pair in facts.pairs if pair.p2p == BY_SETTINGS]
        if off:
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={"node": world.label(node), "pairs": listed(off, 8)},
                evidence=seen(
                    "NVML P2P",
                    {node: said("{num} of {all} pairs: {why}", num=len(off), all=len(facts.pairs), why=BY_SETTINGS)},
                ),
            )
