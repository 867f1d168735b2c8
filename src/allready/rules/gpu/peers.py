"""Ways from one GPU to another on a node: P2P over PCIe."""

import shlex
from collections import defaultdict
from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import listed, seen
from allready.model import (
    BusFacts,
    Confidence,
    Culprits,
    FaultClass,
    GpuFacts,
    GpuPair,
    Hit,
    P2pStatus,
    PerNode,
    RemedyStep,
    Severity,
    World,
)

_WORDS = {
    P2pStatus.CHIPSET: "chipset",
    P2pStatus.GPU: "gpu",
    P2pStatus.TOPOLOGY: "topology",
    P2pStatus.DISABLED: "disabled by the driver's settings",
    P2pStatus.NOT_SUPPORTED: "not supported",
    P2pStatus.UNKNOWN: "unknown",
}
"""Why P2P is off."""


@Rule(
    code="GPU018",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
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
            off = [pair for pair in pairs if pair.p2p is not P2pStatus.OK]
            if off and len(off) < len(pairs):
                yield Hit(
                    culprits=Culprits(nodes=(node,)),
                    values={
                        "node": world.label(node),
                        "pairs": listed([f"{pair.a}-{pair.b}" for pair in off], 8),
                        "reason": tuple(said(_WORDS[why]) for why in sorted({pair.p2p for pair in off if pair.p2p}))
                        or None,
                        "level": level or "one board",
                    },
                    evidence=seen("NVML P2P", {node: "; ".join(f"{p.a}-{p.b} {p.level} {p.p2p}" for p in pairs[:28])}),
                )


@Rule(
    code="GPU026",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_COMM,
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
        off = [f"{pair.a}-{pair.b}" for pair in facts.pairs if pair.p2p is P2pStatus.DISABLED]
        if off:
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={"node": world.label(node), "pairs": listed(off, 8)},
                evidence=seen(
                    "NVML P2P",
                    {
                        node: said(
                            "{num} of {all} pairs: {why}",
                            num=len(off),
                            all=len(facts.pairs),
                            why=said(_WORDS[P2pStatus.DISABLED]),
                        )
                    },
                ),
            )


TRANSLATED = "translated"


@Rule(
    code="GPU019",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.READINESS,
    title="PCIe bridges send the traffic between GPUs up to the processor (ACS)",
    message="node {node}: {count} PCIe bridges above GPUs redirect requests (ACS), for example {bridges}[[; IOMMU: "
    "{iommu}]]; GPUs without NVLink then reach each other through the processor only",
    remedy=(
        RemedyStep(
            explanation="switch ACS off in the firmware's settings (on a machine without guests)", where="node {node}"
        ),
        RemedyStep(
            explanation="or until the next start, for each of these bridges, as root",
            where="node {node}",
            command="setpci -s {first} ECAP_ACS+0x6.w=0000",
        ),
        RemedyStep(explanation="to see whether this is the cause of a hang: NCCL_P2P_DISABLE=1", where="every node"),
    ),
)
def acs_redirects(bus: PerNode[BusFacts], gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The control register of Access Control Services on every PCIe bridge above a GPU (root may read it), on a machine
    with several GPUs without NVLink between which NVML allows P2P. A warning where the IOMMU translates addresses
    as well, else information. In a virtual machine the bus is made up, and nothing is reported.
    ## Why it matters
    A request from one GPU to another goes up to the root complex and, with an IOMMU, through its translation. On
    some platforms the data is then lost: the first collective hangs with the GPUs at 100 %, or results are wrong;
    on others it is slow.
    ## Check by hand
    `sudo lspci -vvv | grep -e '^[0-9a-f]' -e ACSCtl`: `ReqRedir+` is on; NVIDIA's p2pBandwidthLatencyTest.
    ## When it is harmless
    On a host that gives its GPUs to guests, which needs ACS for their isolation.
    """
    for node, facts in bus.items():
        known = gpu.get(node)
        if known is None or facts.is_virtual is not False or not facts.redirecting or len(facts.gpus) < 2:
            continue
        if any(any(one.nvlinks) for one in known.gpus) or not any(pair.p2p is P2pStatus.OK for pair in known.pairs):
            continue
        is_translated = facts.iommu == TRANSLATED
        yield Hit(
            severity=Severity.WARNING if is_translated else None,
            confidence=Confidence.LIKELY if is_translated else Confidence.POSSIBLE,
            culprits=Culprits(nodes=(node,)),
            values={
                "node": world.label(node),
                "count": len(facts.redirecting),
                "bridges": listed(list(facts.redirecting), 3),
                "first": shlex.quote(facts.redirecting[0]),
                "iommu": facts.iommu or None,
            },
            evidence=seen(
                "/sys/bus/pci", {node: said("ReqRedir+ on {ports}", ports=", ".join(facts.redirecting[:16]))}
            ),
        )
