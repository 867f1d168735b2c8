"""GPU014."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.model import Culprits, FaultClass, Gpu, GpuFacts, Hit, PerNode, RemedyStep, Severity, World


@Rule(
    code="GPU014",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    since="0.2",
    layer=Layer.MACHINE,
    title="A GPU has fewer PCIe lanes than the others of its kind",
    message="node {node}: GPU {gpu} is connected by {width} PCIe lanes of {most}; another {name} of this node has"
    " {other}",
    remedy=(
        RemedyStep(
            explanation="reseat the GPU or its riser, and check the link for errors",
            where="node {node}",
            command="sudo lspci -vv -s {bus} | grep -E 'LnkCap|LnkSta'",
        ),
    ),
)
def pcie_narrow(gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The number of PCIe lanes of each GPU against what GPU and slot can do, where another GPU of the same model
    on this machine has more. The speed of the lanes is not compared: it falls while a GPU is idle.
    ## Why it matters
    Copies to and from this GPU, and NCCL over PCIe or the network card beside it, take two to sixteen times as
    long; all ranks wait.
    ## Check by hand
    `nvidia-smi --query-gpu=index,pcie.link.width.current,pcie.link.width.max --format=csv`.
    ## When it is harmless
    Where the slots of a machine differ on purpose.
    """
    for node, facts in gpu.items():
        for one in facts.gpus:
            if (best := _best(facts, one)) is not None:
                yield Hit(
                    culprits=Culprits(nodes=(node,)),
                    values={
                        "node": world.label(node),
                        "gpu": one.index,
                        "width": one.pcie_width or 0,
                        "most": one.max_pcie_width or 0,
                        "other": best,
                        "name": one.name,
                        "bus": one.pci_bus_id,
                    },
                    evidence=(
                        stated(
                            f"NVML GPU {one.index}",
                            "{width} of {all} lanes",
                            node_rank=node,
                            width=one.pcie_width,
                            all=one.max_pcie_width,
                        ),
                    ),
                )


def _best(facts: GpuFacts, gpu: Gpu) -> int | None:
    """The lanes of another GPU of this model, where this one has fewer than it could have and than that one."""
    if gpu.pcie_width is None or gpu.max_pcie_width is None or gpu.pcie_width >= gpu.max_pcie_width:
        return None
    others = [o.pcie_width for o in facts.gpus if o.index != gpu.index and o.name == gpu.name and o.pcie_width]
    return max(others) if others and max(others) > gpu.pcie_width else None
