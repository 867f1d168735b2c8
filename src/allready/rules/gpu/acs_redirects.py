"""GPU019."""

import shlex
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
    Hit,
    PerNode,
    RemedyStep,
    Severity,
    World,
)

TRANSLATED = "translated"


@Rule(
    code="GPU019",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_COMM,
    since="0.2",
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
        if any(any(one.nvlinks) for one in known.gpus) or not any(pair.p2p == "ok" for pair in known.pairs):
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
                "iommu": facts.iommu or "?",
            },
            evidence=seen(
                "/sys/bus/pci", {node: said("ReqRedir+ on {ports}", ports=", ".join(facts.redirecting[:16]))}
            ),
        )
