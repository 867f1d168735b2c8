import shlex
from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import listed, on_nodes
from allready.model import Culprits, FaultClass, Hit, PerNode, RdmaFacts, RemedyStep, Severity, World
from allready.rules.net._rdma import Place, by_place, down_places


@Rule(
    code="NET016",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.READINESS,
    title="An InfiniBand or RoCE port is down",
    message="{ports} of node {nodes} is not ACTIVE; the ports of the same name are ACTIVE on {num_active} other nodes",
    remedy=(
        RemedyStep(explanation="check cable, transceiver and switch port", where="node {nodes}", command="{command}"),
        RemedyStep(
            explanation="until it is up, exclude the port", where="every node", command="export NCCL_IB_HCA=^{devices}"
        ),
    ),
)
def rdma_down(rdma: PerNode[RdmaFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Ports of InfiniBand and RoCE devices that are not ACTIVE on a few nodes and ACTIVE on the others.
    ## Why it matters
    NCCL skips such a port without a warning. The node has less bandwidth than the others and all wait for it; on
    rail-optimized networks the traffic takes a detour or finds no path.
    ## Check by hand
    `ibstat DEVICE PORT` (State, Physical state), `rdma link show`, `ibdev2netdev`.
    ## When it is harmless
    When the port is known to be unused, for example the second port of a card without a cable.
    """
    places = by_place(rdma)
    affected: dict[tuple[int, ...], list[Place]] = {}
    for place, nodes in down_places(rdma).items():
        affected.setdefault(nodes, []).append(place)
    for nodes, found in sorted(affected.items()):
        down = sorted(found)
        yield Hit(
            culprits=Culprits(nodes=nodes),
            values={
                "nodes": on_nodes(world, nodes),
                "ports": listed([f"{device}/{port}" for device, port in down], 4),
                "num_active": min(len(places[p]) - len(nodes) for p in down),
                "command": "; ".join(f"ibstat {shlex.quote(device)} {port}" for device, port in down[:2]),
                "devices": ",".join(f"{device}:{port}" for device, port in down[:8]),
            },
            evidence=tuple(
                stated(
                    f"/sys/class/infiniband/{p.device}/ports/{p.port}",
                    "state {state}, physical state {physical}",
                    node_rank=n,
                    state=p.state,
                    physical=p.physical_state,
                )
                for place in down[:4]
                for n in nodes[:4]
                for p in (places[place][n],)
            ),
        )
