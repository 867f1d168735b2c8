"""The PCIe link of a GPU beside those of others of its kind: its lanes, its generation."""

from collections.abc import Callable, Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, Gpu, GpuFacts, Hit, PerNode, Phrase, RemedyStep, Severity, World


@Rule(
    code="GPU014",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
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
    for node, one, best in _behind(gpu, lambda g: g.pcie_width, lambda g: g.max_pcie_width):
        width, most = one.pcie_width or 0, one.max_pcie_width or 0
        lanes = said("{width} of {all} lanes", width=width, all=most)
        yield _hit(world, node, one, best, lanes, width=width, most=most)


@Rule(
    code="GPU022",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.MACHINE,
    title="A GPU is limited to an older PCIe generation than the others of its kind",
    message="node {node}: GPU {gpu} reaches PCIe generation {most} of {own}; another {name} here reaches {other}",
    remedy=(
        RemedyStep(
            explanation="compare the slot, the riser and the firmware's setting for it with the others",
            where="node {node}",
            command="sudo lspci -vv -s {bus} | grep -E 'LnkCap|LnkSta|LnkCtl2'",
        ),
    ),
)
def pcie_old_generation(gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The newest PCIe generation that each GPU can reach in its slot, where the GPU itself could do a newer one and
    another GPU of the same model on this machine reaches it. The generation in use is not compared: it falls while a
    GPU is idle.
    ## Why it matters
    Every generation doubles the rate. Copies to and from this GPU, and NCCL over PCIe or the network card beside it,
    take at least twice as long; all ranks wait.
    ## Check by hand
    `nvidia-smi --query-gpu=index,pcie.link.gen.max,pcie.link.gen.gpumax --format=csv`.
    ## When it is harmless
    Where the slots of a machine differ on purpose.
    """
    for node, one, best in _behind(gpu, lambda g: g.max_pcie_generation, lambda g: g.own_pcie_generation):
        most, own = one.max_pcie_generation or 0, one.own_pcie_generation or 0
        reached = said("generation {most} of {own}", most=most, own=own)
        yield _hit(world, node, one, best, reached, most=most, own=own)


def _behind(
    gpu: PerNode[GpuFacts], reached: Callable[[Gpu], int | None], possible: Callable[[Gpu], int | None]
) -> Iterator[tuple[int, Gpu, int]]:
    """GPUs that reach less than they could and than another of their model on their node; what that one reaches."""
    for node, facts in gpu.items():
        for one in facts.gpus:
            own, most = reached(one), possible(one)
            best = max((reached(other) or 0 for other in facts.gpus if other.name == one.name), default=0)
            if own and most is not None and own < min(most, best):
                yield node, one, best


def _hit(world: World, node: int, gpu: Gpu, best: int, shown: Phrase, **values: int) -> Hit:
    return Hit(
        culprits=Culprits(nodes=(node,)),
        values={
            "node": world.label(node),
            "gpu": gpu.index,
            "other": best,
            "name": gpu.name,
            "bus": gpu.pci_bus_id,
            **values,
        },
        evidence=seen(f"NVML GPU {gpu.index}", {node: shown}),
    )
