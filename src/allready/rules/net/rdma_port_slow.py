"""NET031."""

from collections.abc import Iterator

from allready.judging.majority import majority
from allready.judging.registry import Layer, Rule
from allready.judging.values import seen
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    Hit,
    PerNode,
    RdmaFacts,
    RdmaPort,
    RemedyStep,
    Severity,
    World,
)

FEW_LANES = 1
SHARE = 0.25


@Rule(
    code="NET031",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    since="0.2",
    layer=Layer.MACHINE,
    title="An InfiniBand port runs far below the others of its machine",
    message="node {node}: {port} runs at {rate} Gbit/s[[ over {lanes} lanes]]; {count} other ports of this machine "
    "run at {usual} Gbit/s[[ over {usual_lanes}]]",
    remedy=(
        RemedyStep(
            explanation="look at what the link has negotiated, and at cable and transceiver",
            where="node {node}",
            command="ibstat {device} {number}; sudo mlxlink -d {device} -m",
        ),
        RemedyStep(explanation="reseat or replace the cable; on the switch look at the width of this port"),
    ),
)
def rdma_port_slow(rdma: PerNode[RdmaFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Rate and lanes of each ACTIVE InfiniBand port against the rate that most of this machine's ports have: a port with a
    quarter of it or less. With one lane it is a warning: no cable is made for one; else information.
    ## Why it matters
    A link whose lanes failed stays up with those that are left. NCCL takes it like the others, and the ring is as fast
    as its slowest link.
    ## Check by hand
    `grep . /sys/class/infiniband/*/ports/*/rate`; `ibstat`.
    ## When it is harmless
    For an adapter of another kind, for storage or management: then with all of its lanes.
    """
    for node, facts in rdma.items():
        active = [p for p in facts.ports if p.state == "ACTIVE" and p.link_layer == "InfiniBand" and p.rate_gbit_per_s]
        most = majority({at: (p.rate_gbit_per_s, p.num_lanes) for at, p in enumerate(active)})
        if most is not None and len(most.members) > 1:
            (usual, usual_lanes), count = most.value, len(most.members)
            for port in active:
                if _is_slow(port, usual or 0.0):
                    yield Hit(
                        severity=None if port.num_lanes == FEW_LANES else Severity.INFO,
                        confidence=Confidence.LIKELY if port.num_lanes == FEW_LANES else Confidence.POSSIBLE,
                        culprits=Culprits(nodes=(node,)),
                        values={
                            "node": world.label(node),
                            "port": f"{port.device}/{port.port}",
                            "device": port.device,
                            "number": port.port,
                            "rate": f"{port.rate_gbit_per_s:g}",
                            "lanes": port.num_lanes or "?",
                            "count": count,
                            "usual": f"{usual:g}",
                            "usual_lanes": usual_lanes or "?",
                        },
                        evidence=seen("/sys/class/infiniband", {node: "; ".join(map(_shown, active[:16]))}),
                    )


def _is_slow(port: RdmaPort, usual: float) -> bool:
    return port.rate_gbit_per_s is not None and port.rate_gbit_per_s <= SHARE * usual


def _shown(port: RdmaPort) -> str:
    return f"{port.device}/{port.port} {port.rate_gbit_per_s:g} Gbit/s, {port.num_lanes} lanes"
