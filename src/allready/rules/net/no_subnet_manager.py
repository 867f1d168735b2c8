"""NET021."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.values import listed, seen
from allready.model import Culprits, FaultClass, Hit, PerNode, RdmaFacts, RemedyStep, Severity, World


@Rule(
    code="NET021",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    since="0.2",
    layer=Layer.READINESS,
    title="An InfiniBand port has a link, and no subnet manager made it active",
    message="node {node}: {ports}: the cable has a link, and the state stays {state}: no subnet manager has set it up",
    remedy=(
        RemedyStep(
            explanation="see whether a subnet manager answers",
            where="node {node}",
            command="sminfo -C {device} -P {port}",
        ),
        RemedyStep(
            explanation="start one: on the switch, in UFM, or opensm on one node",
            where="one node",
            command="sudo systemctl start opensm",
        ),
    ),
)
def no_subnet_manager(rdma: PerNode[RdmaFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Ports with link layer InfiniBand whose physical state is LinkUp and whose state is INIT or ARMED.
    ## Why it matters
    NCCL uses ACTIVE ports only and passes over the others without a warning: the job runs over TCP, ten times slower,
    or one node has a rail less than the others.
    ## Check by hand
    `ibstat`: "State: Initializing" beside "Physical state: LinkUp".
    ## When it is harmless
    For some seconds after a link comes up. A port without a cable (DOWN, Polling) is no finding.
    """
    for node, facts in rdma.items():
        waiting = [
            p
            for p in facts.ports
            if p.link_layer == "InfiniBand" and p.physical_state == "LinkUp" and p.state in {"INIT", "ARMED"}
        ]
        if waiting:
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "ports": listed([f"{p.device}/{p.port}" for p in waiting], 4),
                    "state": ", ".join(dict.fromkeys(p.state for p in waiting)),
                    "device": waiting[0].device,
                    "port": waiting[0].port,
                },
                evidence=seen(
                    "/sys/class/infiniband",
                    {node: "; ".join(f"{p.device}/{p.port} {p.state} {p.physical_state}" for p in waiting[:8])},
                ),
            )
