"""NVLink: its links, the fabric, the fabric manager."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    Gpu,
    GpuFacts,
    Hit,
    HostFacts,
    PerNode,
    RemedyStep,
    Severity,
    World,
)


@Rule(
    code="GPU015",
    severity=Severity.WARNING,
    fault_class=FaultClass.HW_HANG,
    layer=Layer.MACHINE,
    title="Some NVLinks of a GPU are down",
    message="node {node}: only {up} NVLinks of GPU {gpu} are up; another {name} of this node has {other}",
    remedy=(
        RemedyStep(
            explanation="see which links are down, and their errors",
            where="node {node}",
            command="nvidia-smi nvlink -s -i {gpu}; nvidia-smi nvlink -e -i {gpu}",
        ),
        RemedyStep(
            explanation="with no process on the node, reset its GPUs",
            where="node {node}",
            command="sudo nvidia-smi --gpu-reset",
        ),
    ),
)
def nvlink_down(gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The number of NVLinks of each GPU that are up, against other GPUs of the same model on this machine. A
    machine where no NVLink is up on any GPU has none: that is no finding.
    ## Why it matters
    NCCL takes fewer rings, or PCIe in place of NVLink; where an NVSwitch is used, CUDA may not start at all.
    ## Check by hand
    `nvidia-smi nvlink -s`.
    ## When it is harmless
    Bridges that connect some GPUs of a machine and not others on purpose.
    """
    for node, facts in gpu.items():
        for one in facts.gpus:
            if (best := _most_up(facts, one)) > 0 and sum(one.nvlinks) < best:
                yield Hit(
                    culprits=Culprits(nodes=(node,)),
                    values={
                        "node": world.label(node),
                        "gpu": one.index,
                        "up": sum(one.nvlinks),
                        "other": best,
                        "name": one.name,
                    },
                    evidence=(
                        stated(
                            f"NVML GPU {one.index}",
                            "{up} of {all} links are up",
                            node_rank=node,
                            up=sum(one.nvlinks),
                            all=len(one.nvlinks),
                        ),
                    ),
                )


def _most_up(facts: GpuFacts, gpu: Gpu) -> int:
    """The links of the other GPU of this model that has most of them up."""
    return max((sum(o.nvlinks) for o in facts.gpus if o.index != gpu.index and o.name == gpu.name), default=0)


@Rule(
    code="GPU016",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.MACHINE,
    title="The NVLink fabric of a GPU is not ready",
    message="node {node}: the fabric manager has not registered GPU {gpu}[[ ({state})]]",
    remedy=(
        RemedyStep(
            explanation="start the fabric manager; its version must be that of the driver",
            where="node {node}",
            command="systemctl status nvidia-fabricmanager; sudo systemctl restart nvidia-fabricmanager",
        ),
    ),
)
def fabric_not_ready(gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The state of the NVLink fabric by NVML, on machines with more than one GPU whose driver reports one: that it waits
    for the fabric manager, or has ended with an error. GPUs without an NVSwitch report that they have none.
    ## Why it matters
    Until the fabric manager has registered the GPU, CUDA fails with error 802, system not yet initialized, in
    every process.
    ## Check by hand
    `nvidia-smi -q | grep -A 4 Fabric`.
    ## When it is harmless
    For a minute after the machine has booted, and where a host outside of this virtual machine runs the fabric
    manager.
    """
    for node, facts in gpu.items():
        for one in facts.gpus:
            if len(facts.gpus) > 1 and one.fabric_state in {"not_started", "in_progress", "failed"}:
                yield Hit(
                    culprits=Culprits(nodes=(node,)),
                    values={"node": world.label(node), "gpu": one.index, "state": one.fabric_state or None},
                    evidence=(
                        stated(f"NVML GPU {one.index}", "fabric state {state}", node_rank=node, state=one.fabric_state),
                    ),
                )


READY = "completed"


@Rule(
    code="GPU024",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.MACHINE,
    title="NVSwitches without a fabric manager",
    message="node {node}: this machine has {count} NVSwitches, and no fabric manager runs",
    remedy=(
        RemedyStep(
            explanation="start it; its version must be that of the driver[[ ({driver})]]",
            where="node {node}",
            command="systemctl status nvidia-fabricmanager; sudo systemctl enable --now nvidia-fabricmanager",
        ),
        RemedyStep(
            explanation="see why it ended", where="node {node}", command="journalctl -u nvidia-fabricmanager | tail -50"
        ),
    ),
)
def no_fabric_manager(gpu: PerNode[GpuFacts], host: PerNode[HostFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Where the driver lists NVSwitches: whether nv-fabricmanager runs. A machine whose GPUs report a fabric that is ready
    has one, wherever it runs; in a container the processes of the machine cannot be seen, and nothing is reported.
    ## Why it matters
    On machines with NVSwitch (HGX and DGX) CUDA does not start without it: error 802, "system not yet initialized", in
    every process and with one GPU, too. After an update of the driver it ends because its version is another one.
    ## Check by hand
    `systemctl status nvidia-fabricmanager`; `ls /proc/driver/nvidia-nvswitch/devices`.
    ## When it is harmless
    Where a service machine beside this one manages the switches.
    """
    for node, facts in gpu.items():
        machine = host.get(node)
        is_ready = any(one.fabric_state == READY for one in facts.gpus)
        if not facts.num_switches or facts.has_fabric_manager is not False or is_ready:
            continue
        if machine is not None and machine.container is None:
            yield Hit(
                confidence=Confidence.LIKELY,
                culprits=Culprits(nodes=(node,)),
                values={"node": world.label(node), "count": facts.num_switches, "driver": facts.driver_version or None},
                evidence=(
                    stated(
                        "/proc",
                        "{count} in nvidia-nvswitch/devices; no process nv-fabricmanager",
                        node_rank=node,
                        count=facts.num_switches,
                    ),
                ),
            )
