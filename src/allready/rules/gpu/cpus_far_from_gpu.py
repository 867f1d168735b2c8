"""GPU021."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import listed, seen
from allready.model import BusFacts, Culprits, FaultClass, GpuFacts, Hit, PerNode, RemedyStep, Severity, World
from allready.model.numbers import cpus_of


@Rule(
    code="GPU021",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.READINESS,
    title="No CPU that the job may use is beside its GPU",
    message="node {node}: GPU {gpus} is beside the CPUs {near}, and this process may use {usable} only",
    remedy=(
        RemedyStep(
            explanation="ask the scheduler for CPUs beside the GPUs (Slurm: --gpu-bind=closest; Kubernetes: the "
            "topology manager's policy single-numa-node)",
            where="node {node}",
        ),
        RemedyStep(
            explanation="see which CPUs are beside which GPU", where="node {node}", command="nvidia-smi topo -m"
        ),
    ),
)
def cpus_far_from_gpu(bus: PerNode[BusFacts], gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether the CPUs on which this process may run include one on the NUMA node of each GPU that the job uses. Machines
    with one NUMA node, and those that do not tell, are no finding.
    ## Why it matters
    Copies to the GPU, the launch of kernels and NCCL's proxy threads cross to the other processor: 10 to 30 % less
    bandwidth from the host, and more where all ranks do so.
    ## Check by hand
    `nvidia-smi topo -m` (column CPU Affinity); `taskset -cp $$`.
    ## When it is harmless
    Where little is copied between host and GPU.
    """
    for node, facts in bus.items():
        usable = cpus_of(facts.usable_cpus)
        known = gpu.get(node)
        if not usable or known is None:
            continue
        used = {short(one.pci_bus_id): one.index for one in known.gpus if one.index in known.visible}
        far = [
            (used[short(one.address)], one)
            for one in facts.gpus
            if one.numa_node is not None
            and short(one.address) in used
            and usable.isdisjoint(cpus_of(one.cpus) or usable)
        ]
        if far:
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "gpus": ", ".join(str(index) for index, _ in far),
                    "near": listed(list(dict.fromkeys(one.cpus for _, one in far)), 2, "; "),
                    "usable": facts.usable_cpus,
                },
                evidence=seen(
                    "/sys/bus/pci",
                    {
                        node: tuple(
                            said(
                                "GPU {gpu} {address}: NUMA node {numa}, CPUs {cpus}",
                                gpu=i,
                                address=one.address,
                                numa=one.numa_node,
                                cpus=one.cpus,
                            )
                            for i, one in far
                        )
                    },
                ),
            )


def short(address: str) -> str:
    """NVML writes the domain with eight digits and in capitals, /sys with four and in small letters."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain[-4:]}:{rest}"
