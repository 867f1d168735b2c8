from collections import Counter
from collections.abc import Iterator

from allready.judging.majority import Split
from allready.judging.node_split import differing
from allready.judging.registry import Layer, Rule
from allready.judging.values import on_nodes
from allready.model import FaultClass, Hit, PerNode, RdmaFacts, RemedyStep, Severity, World
from allready.rules.net._rdma import down_places


@Rule(
    code="NET015",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.READINESS,
    title="Nodes have different InfiniBand or RoCE ports",
    message="active InfiniBand and RoCE ports differ between nodes: {split}",
    remedy=(
        RemedyStep(explanation="compare the ports", where="node {nodes}", command="ibstat || rdma link show"),
        RemedyStep(
            explanation="if a port is missing, check the card and its driver",
            where="node {nodes}",
            command="lspci -d 15b3:; dmesg | grep -i mlx",
        ),
        RemedyStep(
            explanation="in a container, pass the devices in",
            where="node {nodes}",
            command="docker run --device=/dev/infiniband --cap-add=IPC_LOCK",
        ),
    ),
)
def rdma_differs(rdma: PerNode[RdmaFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Number, kind and rate of the ACTIVE ports of InfiniBand and RoCE devices. Ports that are down on few nodes and up on
    the others are left to NET016.
    ## Why it matters
    NCCL accepts nodes with unequal ports, and every collective runs at the pace of the node with the least. A node
    without any falls back to TCP, ten to twenty times slower, without a warning.
    ## Check by hand
    `ibstat | grep -E "State|Rate"` on two nodes, side by side.
    ## When it is harmless
    When the extra ports are for storage, or NCCL_IB_HCA selects the same ones on all nodes.
    """
    down = down_places(rdma)
    active = {
        n: [p for p in f.ports if p.state == "ACTIVE" and (p.device, p.port) not in down] for n, f in rdma.items()
    }
    kinds = {n: _kinds(Counter((p.link_layer, p.rate_gbit_per_s) for p in ports)) for n, ports in active.items()}
    odd = Split.by(kinds, num_members=world.num_nodes).outliers()
    yield from differing(
        kinds,
        "/sys/class/infiniband",
        num_nodes=world.num_nodes,
        texts={
            n: ", ".join(f"{p.device}/{p.port} {p.state} {p.rate_gbit_per_s}" for p in facts.ports) or "-"
            for n, facts in rdma.items()
        },
        nodes=on_nodes(world, odd or tuple(kinds)),
    )


def _kinds(ports: Counter[tuple[str, float | None]]) -> str:
    """`8 x InfiniBand 400 Gbit/s`, several kinds joined by +; `0` when there is none."""
    parts = (
        f"{count} x {layer}" + (f" {rate:g} Gbit/s" if rate is not None else "")
        for (layer, rate), count in sorted(ports.items(), key=lambda item: (item[0][0], item[0][1] or 0.0))
    )
    return " + ".join(parts) or "0"
