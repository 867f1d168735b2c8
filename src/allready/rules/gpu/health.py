"""GPUs that are damaged, lost or slowed down."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import said, stated
from allready.judging.values import listed, seen, wants_nccl
from allready.model import (
    Culprits,
    FaultClass,
    Gpu,
    GpuFacts,
    Hit,
    LaunchFacts,
    PerNode,
    RemedyStep,
    Severity,
    World,
    Xid,
)


@Rule(
    code="GPU025",
    severity=Severity.ERROR,
    fault_class=FaultClass.HW_HANG,
    layer=Layer.MACHINE,
    title="A GPU does not answer its driver",
    message="node {node}: GPU {gpus} does not answer the driver ({words}); {count} others of this machine do",
    remedy=(
        RemedyStep(
            explanation="the kernel log has the reason, mostly Xid 79",
            where="node {node}",
            command="sudo dmesg -T | grep -i -e xid -e nvrm | tail -20",
        ),
        RemedyStep(
            explanation="with no process on the machine, reset its GPUs; if that fails, switch the machine off and on",
            where="node {node}",
            command="sudo nvidia-smi --gpu-reset",
        ),
    ),
)
def gpu_lost(gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    GPUs that the driver lists and about which NVML gives an error in place of an answer, on a machine where others
    answer.
    ## Why it matters
    The rank on this GPU cannot start, or hangs in its first call; with CUDA_VISIBLE_DEVICES unset CUDA may find no
    GPU at all. All other ranks wait.
    ## Check by hand
    `nvidia-smi` prints "GPU is lost" or "Unable to determine the device handle".
    ## When it is harmless
    While this GPU is being reset.
    """
    for node, facts in gpu.items():
        if facts.lost:
            shown = tuple(said("GPU {gpu}: {words}", gpu=gpu, words=words) for gpu, words in sorted(facts.lost.items()))
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "gpus": ", ".join(str(index) for index in sorted(facts.lost)),
                    "words": listed(list(dict.fromkeys(facts.lost.values())), 2, "; "),
                    "count": len(facts.gpus),
                },
                evidence=seen("NVML", {node: shown}),
            )


@Rule(
    code="GPU010",
    severity=Severity.WARNING,
    fault_class=FaultClass.HW_HANG,
    layer=Layer.MACHINE,
    title="A GPU has memory errors that it could not correct",
    message="node {node}: GPU {gpu} ({uuid}) had uncorrectable memory errors: {counts}",
    remedy=(
        RemedyStep(
            explanation="with no process on this GPU, reset it: that replaces the row",
            where="node {node}",
            command="sudo nvidia-smi --gpu-reset -i {gpu}",
        ),
        RemedyStep(
            explanation="if the remapping failed, or errors come back: run the diagnosis and have the GPU replaced",
            where="node {node}",
            command="dcgmi diag -r 3 -i {gpu}",
        ),
    ),
)
def memory_errors(gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    What NVML reports of each GPU: memory errors that ECC could not correct since the driver was loaded, a row (before
    Ampere: a page) that waits to be replaced at the next reset, and a replacement that failed because no spare row is
    left. The last is an error, the others are warnings. Errors that ECC corrected are no finding.
    ## Why it matters
    A process that touches the row ends with Xid 94, or with Xid 48 or 95, which take all processes of the GPU with
    them: one rank dies, or its kernels never end, and all others wait for it.
    ## Check by hand
    `nvidia-smi -q -d ECC,ROW_REMAPPER`; `dmesg -T | grep -i xid`.
    ## When it is harmless
    After a reset that replaced the row, the counters are zero again.
    """
    for node, facts in gpu.items():
        for one in facts.gpus:
            counts = tuple(_counts(one))
            if counts:
                yield Hit(
                    severity=Severity.ERROR if one.has_remap_failed else None,
                    culprits=Culprits(nodes=(node,)),
                    values={"node": world.label(node), "gpu": one.index, "uuid": one.uuid, "counts": ", ".join(counts)},
                    evidence=seen(f"NVML GPU {one.index}", {node: ", ".join(counts)}),
                )


def _counts(gpu: Gpu) -> Iterator[str]:
    """In NVML's words."""
    if gpu.num_uncorrected:
        yield f"volatile uncorrected ECC errors {gpu.num_uncorrected}"
    if gpu.is_remap_pending:
        yield "row remapping pending"
    if gpu.is_retirement_pending:
        yield "page retirement pending"
    if gpu.has_remap_failed:
        yield "row remapping failure"


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
                    "gpu": None if is_switch else xid.pci_bus_id if index is None else index,
                    "xid": None if is_switch else xid.code,
                    "switch": xid.pci_bus_id if is_switch else None,
                    "sxid": xid.code if is_switch else None,
                    "action": xid.action or None,
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


@Rule(
    code="GPU013",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMP,
    layer=Layer.MACHINE,
    title="A GPU is throttled by temperature or power",
    message="node {node}: GPU {gpu} is throttled now: {reasons}",
    remedy=(
        RemedyStep(
            explanation="read temperature, fans and power",
            where="node {node}",
            command="nvidia-smi -q -i {gpu} -d PERFORMANCE,TEMPERATURE,POWER",
        ),
    ),
)
def clocks_lowered(gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Why each GPU runs below its clocks at this moment, by NVML: hardware slowdown, heat, power brake. Idleness
    and the power cap, under which a busy GPU always runs, are no finding.
    ## Why it matters
    The rank on this GPU computes more slowly, often by half, and all others wait for it in every step.
    ## Check by hand
    `nvidia-smi -q -d PERFORMANCE`, several times while the GPU works.
    ## When it is harmless
    When it was for a moment only: ask again.
    """
    for node, facts in gpu.items():
        for one in facts.gpus:
            if one.slowdowns:
                yield Hit(
                    culprits=Culprits(nodes=(node,)),
                    values={"node": world.label(node), "gpu": one.index, "reasons": ", ".join(one.slowdowns)},
                    evidence=seen(f"NVML GPU {one.index}", {node: ", ".join(one.slowdowns)}),
                )


@Rule(
    code="GPU007",
    severity=Severity.INFO,
    fault_class=FaultClass.HEALTHY,
    layer=Layer.READINESS,
    title="GPUs of a node stay unused",
    message="node {node}: {nproc} ranks use {nproc} of {num_gpus} available GPUs",
    remedy=RemedyStep(explanation="to use all of them: --nproc-per-node {num_gpus}", where="node {node}"),
)
def gpu_idle(gpu: PerNode[GpuFacts], launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether a node offers more GPUs than it has ranks, while --devices or CUDA_VISIBLE_DEVICES do not choose them.
    ## Why it matters
    It costs only the idle GPUs; a forgotten --nproc-per-node looks like this.
    ## Check by hand
    `nvidia-smi -L | wc -l`.
    ## When it is harmless
    Always; it is information only.
    """
    for node, facts in gpu.items():
        job, num_gpus = launch[node], len(facts.visible)
        chosen = bool(job.devices) or facts.visible_devices is not None
        if not chosen and job.nproc_per_node < num_gpus and wants_nccl(node, launch, gpu):
            yield Hit(
                values={"node": world.label(node), "nproc": job.nproc_per_node, "num_gpus": num_gpus},
                evidence=(stated("NVML", "visible GPUs: {gpus}", node_rank=node, gpus=list(facts.visible)),),
            )
