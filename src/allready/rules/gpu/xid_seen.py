"""GPU012."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, GpuFacts, Hit, PerNode, RemedyStep, Severity, World, Xid
from allready.model.fill import UNKNOWN

NEED_RESET = frozenset({48, 62, 64, 79, 95, 119, 120, 140})
OF_NVLINK = frozenset({74, *range(144, 151)})
"""These need one where they say that the error is fatal."""
RECOVERY = 154
"""What the driver says that the GPU needs now."""
OF_SWITCHES = 10_000
RECENT_S = 24 * 3600.0
NOTHING = "None"


@Rule(
    code="GPU012",
    severity=Severity.WARNING,
    fault_class=FaultClass.HW_HANG,
    since="0.2",
    layer=Layer.MACHINE,
    title="The kernel log has an error of a GPU after which it needs a reset",
    message="node {node}: [[GPU {gpu} reported Xid {xid}|the NVSwitch at {switch} reported SXid {sxid}|a GPU "
    "reported an error]] {hours} h ago[[; it needs: {action}]]",
    remedy=(
        RemedyStep(
            explanation="with no process on this GPU, reset it; if that fails, reboot the node",
            where="node {node}",
            command="{reset}",
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
    Xids in the kernel log since the driver was loaded, as far as it may be read: 79 (fallen off the bus), 48 and 140
    (memory errors), 64 (a row could not be replaced), 95 (a memory error that was not contained), 62 (the firmware
    halted), 119 and 120 (the GPU's own processor does not answer), 74 and 144 to 150 (NVLink) and SXids of NVSwitches
    that say that they are fatal, and 154, by which newer drivers say what the GPU needs; where its last one says that
    nothing is needed any more, earlier ones of this GPU do not count. In the last 24 h it is a warning, before that
    information. Xids of programs (13, 31, 43, 45) and errors that were contained (63, 92, 94) are no finding.
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
        for xid in _open(facts.xids):
            index = by_bus.get(_bus(xid.pci_bus_id))
            is_switch = xid.code >= OF_SWITCHES
            yield Hit(
                severity=None if xid.age_s <= RECENT_S else Severity.INFO,
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "gpu": UNKNOWN if is_switch else xid.pci_bus_id if index is None else index,
                    "xid": UNKNOWN if is_switch else xid.code,
                    "switch": xid.pci_bus_id if is_switch else UNKNOWN,
                    "sxid": xid.code if is_switch else UNKNOWN,
                    "action": xid.action or UNKNOWN,
                    "hours": f"{xid.age_s / 3600:.1f}",
                    # What goes through switches is reset for all GPUs together.
                    "reset": "sudo nvidia-smi --gpu-reset" + ("" if index is None else f" -i {index}"),
                },
                evidence=seen("kernel log", {node: xid.text}),
            )


def _open(xids: tuple[Xid, ...]) -> list[Xid]:
    """The last one of each GPU or switch after which a reset is needed and was not made."""
    last: dict[str, Xid] = {}
    for xid in xids:
        if xid.code == RECOVERY and xid.action == NOTHING:
            last.pop(xid.pci_bus_id, None)
        elif _needs_reset(xid):
            last[xid.pci_bus_id] = xid
    return list(last.values())


def _needs_reset(xid: Xid) -> bool:
    if xid.code in OF_NVLINK or xid.code >= OF_SWITCHES:
        return xid.is_fatal
    return xid.code in NEED_RESET or (xid.code == RECOVERY and bool(xid.action))


def _bus(text: str) -> str:
    """The kernel writes 0000:3b:00, NVML 00000000:3B:00.0."""
    return text.lower().lstrip("0").partition(".")[0]
