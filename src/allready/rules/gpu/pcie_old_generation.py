"""GPU022."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, Gpu, GpuFacts, Hit, PerNode, RemedyStep, Severity, World


@Rule(
    code="GPU022",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    since="0.2",
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
    for node, facts in gpu.items():
        for one in facts.gpus:
            if (best := _best(facts, one)) is not None:
                reached = said("generation {most} of {own}", most=one.max_pcie_generation, own=one.own_pcie_generation)
                yield Hit(
                    culprits=Culprits(nodes=(node,)),
                    values={
                        "node": world.label(node),
                        "gpu": one.index,
                        "most": one.max_pcie_generation or 0,
                        "own": one.own_pcie_generation or 0,
                        "other": best,
                        "name": one.name,
                        "bus": one.pci_bus_id,
                    },
                    evidence=seen(f"NVML GPU {one.index}", {node: reached}),
                )


def _best(facts: GpuFacts, gpu: Gpu) -> int | None:
    """What another GPU of this model reaches, where this one reaches less than it could and than that one."""
    most, own = gpu.max_pcie_generation, gpu.own_pcie_generation
    if not most or own is None or most >= own:
        return None
    others = [o.max_pcie_generation for o in facts.gpus if o.name == gpu.name and o.max_pcie_generation]
    return max(others) if max(others) > most else None
