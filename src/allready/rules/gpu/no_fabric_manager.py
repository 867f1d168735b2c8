"""GPU024."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    GpuFacts,
    Hit,
    HostFacts,
    PerNode,
    RemedyStep,
    Severity,
    World,
)

READY = "completed"


@Rule(
    code="GPU024",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
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
                values={"node": world.label(node), "count": facts.num_switches, "driver": facts.driver_version or "?"},
                evidence=(
                    stated(
                        "/proc",
                        "{count} in nvidia-nvswitch/devices; no process nv-fabricmanager",
                        node_rank=node,
                        count=facts.num_switches,
                    ),
                ),
            )
