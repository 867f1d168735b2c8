"""GPU018."""

from collections import defaultdict
from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import listed, seen
from allready.model import Culprits, FaultClass, GpuFacts, GpuPair, Hit, PerNode, RemedyStep, Severity, World
from allready.model.fill import UNKNOWN

OK = "ok"


@Rule(
    code="GPU018",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    since="0.2",
    layer=Layer.MACHINE,
    title="P2P is off between some GPUs and on between others of the same kind",
    message="node {node}: P2P is off between GPUs {pairs}[[ ({reason})]], and on between other GPUs of this machine "
    "with the same between them ({level})",
    remedy=(
        RemedyStep(
            explanation="see all pairs, and what is between them",
            where="node {node}",
            command="nvidia-smi topo -p2p r; nvidia-smi topo -m",
        ),
        RemedyStep(
            explanation="look for a setting of the driver, and for ACS on the bridges above these GPUs",
            where="node {node}",
            command="grep -i -e registry -e peer /proc/driver/nvidia/params; sudo lspci -vvv | grep ACSCtl",
        ),
    ),
)
def p2p_off_between_alike(gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether NVML lets each pair of GPUs read each other's memory, where other pairs of the same models with the same
    connection (PIX, PXB, PHB, NODE, SYS of `nvidia-smi topo -m`) may. Where it is off between all alike, the
    driver, the GPUs or the virtual machine do not have it: that is no finding. Machines with NVLink are not
    judged, for a bridge that connects some pairs is usual.
    ## Why it matters
    NCCL copies through the host's memory between these GPUs, at a fraction of the speed, and the whole ring is as
    fast as its slowest pair.
    ## Check by hand
    `nvidia-smi topo -p2p r`.
    ## When it is harmless
    Where a job uses only one of the two GPUs.
    """
    for node, facts in gpu.items():
        if any(any(one.nvlinks) for one in facts.gpus):
            continue
        names = {one.index: one.name for one in facts.gpus}
        alike: dict[tuple[str, tuple[str, ...]], list[GpuPair]] = defaultdict(list)
        for pair in facts.pairs:
            if pair.p2p is not None and pair.level is not None:
                models = tuple(sorted((names.get(pair.a, ""), names.get(pair.b, ""))))
                alike[pair.level, models].append(pair)
        for (level, _), pairs in alike.items():
            off = [pair for pair in pairs if pair.p2p != OK]
            if off and len(off) < len(pairs):
                yield Hit(
                    culprits=Culprits(nodes=(node,)),
                    values={
                        "node": world.label(node),
                        "pairs": listed([f"{pair.a}-{pair.b}" for pair in off], 8),
                        "reason": tuple(said(form) for form in sorted({pair.p2p for pair in off if pair.p2p}))
                        or UNKNOWN,
                        "level": level or "one board",
                    },
                    evidence=seen("NVML P2P", {node: "; ".join(f"{p.a}-{p.b} {p.level} {p.p2p}" for p in pairs[:28])}),
                )
