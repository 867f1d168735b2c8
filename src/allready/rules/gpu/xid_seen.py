"""GPU012."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, GpuFacts, Hit, PerNode, RemedyStep, Severity, World

NEED_RESET = frozenset({64, 79, 95, 119, 120, 140})
RECENT_S = 24 * 3600.0


@Rule(
    code="GPU012",
    severity=Severity.WARNING,
    fault_class=FaultClass.HW_HANG,
    since="0.2",
    layer=Layer.MACHINE,
    title="The kernel log has an error of a GPU after which it needs a reset",
    message="node {node}: GPU {gpu} reported Xid {xid} {hours} h ago",
    remedy=(
        RemedyStep(
            explanation="with no process on this GPU, reset it; if that fails, reboot the node",
            where="node {node}",
            command="sudo nvidia-smi --gpu-reset -i {gpu}",
        ),
        RemedyStep(
            explanation="if it comes back: run the diagnosis and have the GPU replaced",
            where="node {node}",
            command="dcgmi diag -r 3",
        ),
    ),
)
def xid_seen(gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Xids in the kernel log since the driver was loaded, as far as it may be read: 79 (fallen off the bus), 64 (a
    row could not be replaced), 95 (a memory error that was not contained), 119 and 120 (the GPU's own processor
    does not answer), 140 (memory errors). In the last 24 h it is a warning, before that information. Xids of
    programs (13, 31, 43, 45) and errors that were contained (63, 92, 94) are no finding.
    ## Why it matters
    Such a GPU fails the next process, or hangs in it: one rank ends or never comes to the collective, and all
    others wait.
    ## Check by hand
    `dmesg -T | grep -i xid`; `nvidia-smi -q`.
    ## When it is harmless
    After a reset of the GPU without loading the driver again, which leaves no line that could be read here.
    """
    for node, facts in gpu.items():
        by_bus = {_bus(one.pci_bus_id): one.index for one in facts.gpus}
        last = {x.pci_bus_id: x for x in facts.xids if x.code in NEED_RESET}
        for xid in last.values():
            yield Hit(
                severity=None if xid.age_s <= RECENT_S else Severity.INFO,
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "gpu": by_bus.get(_bus(xid.pci_bus_id), xid.pci_bus_id),
                    "xid": xid.code,
                    "hours": f"{xid.age_s / 3600:.1f}",
                },
                evidence=seen("kernel log", {node: xid.text}),
            )


def _bus(text: str) -> str:
    """The kernel writes 0000:3b:00, NVML 00000000:3B:00.0."""
    return text.lower().lstrip("0").partition(".")[0]
