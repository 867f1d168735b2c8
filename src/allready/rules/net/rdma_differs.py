"""NET015."""

from collections import Counter
from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.majority import Split
from allready.judging.node_split import brief, some
from allready.judging.registry import Rule
from allready.judging.values import on_nodes
from allready.model import Culprits, Evidence, FaultClass, Hit, PerNode, RdmaFacts, RemedyStep, Severity, World
from allready.rules.net._rdma import down_places


@Rule(
    code="NET015",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    since="0.1",
    layer=Layer.READINESS,
    title="Nodes have different InfiniBand or RoCE ports",
    message="active InfiniBand and RoCE ports differ between nodes: {split}",
    remedy=(
        RemedyStep(
            explanation="compare the ports",
            where="node {nodes}",
            command="ibstat || rdma link show",
        ),
        RemedyStep(
            explanation="a port that is missing: is the card there, and does its driver complain",
            where="node {nodes}",
            command="lspci -d 15b3:; dmesg | grep -i mlx",
        ),
        RemedyStep(
            explanation="in a container: pass /dev/infiniband in",
        ),
    ),
)
def rdma_differs(rdma: PerNode[RdmaFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Number, kind and rate of the ACTIVE ports of InfiniBand and RoCE devices. Ports that are down on few nodes and up
    on the others are another finding (NET016) and left out here.
    ## Why it matters
    NCCL accepts nodes with unequal ports, and every collective runs at the pace of the node with the least. A node
    without any falls back to TCP, ten to twenty times slower, and says so nowhere.
    ## Check by hand
    `ibstat | grep -E "State|Rate"` on two nodes, side by side.
    ## When it is harmless
    When the extra ports are for storage, or NCCL_IB_HCA selects the same ones on all nodes.
    """
    down = down_places(rdma)
    seen = {
        node: _signature(
            Counter(
                (p.link_layer, p.rate_gbit_per_s)
                for p in facts.ports
                if p.state == "ACTIVE" and (p.device, p.port) not in down
            )
        )
        for node, facts in rdma.items()
    }
    split = Split.by(seen)
    if len(split) < 2:
        return
    outliers = split.outliers()
    yield Hit(
        culprits=Culprits(nodes=outliers),
        values={"split": brief(split), "nodes": on_nodes(world, outliers or tuple(seen))},
        evidence=tuple(
            Evidence(
                source="/sys/class/infiniband",
                node_rank=n,
                text=", ".join(f"{p.device}/{p.port} {p.state} {p.rate_gbit_per_s}" for p in rdma[n].ports) or "-",
            )
            for n in some(seen, outliers)
        ),
    )


def _signature(ports: Counter[tuple[str, float | None]]) -> str:
    """`8 x InfiniBand 400 Gbit/s`, several kinds joined by +; `0` when there is none."""
    parts = (
        f"{count} x {layer}" + (f" {rate:g} Gbit/s" if rate is not None else "")
        for (layer, rate), count in sorted(ports.items(), key=lambda item: (item[0][0], item[0][1] or 0.0))
    )
    return " + ".join(parts) or "0"
