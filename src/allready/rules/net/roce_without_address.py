"""NET030."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.values import listed, seen
from allready.model import (
    Culprits,
    FaultClass,
    GpuFacts,
    Hit,
    PerNode,
    RdmaFacts,
    RdmaPort,
    RemedyStep,
    Severity,
    World,
)
from allready.model.fill import UNKNOWN

VERSION_2 = "RoCE v2"
LINK_LOCAL = "fe80:"


@Rule(
    code="NET030",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_COMM,
    since="0.2",
    layer=Layer.READINESS,
    title="A RoCE port has no address that leads to other machines",
    message="node {node}: {ports} is ACTIVE, and its GID table has link-local entries of RoCE v2 only[[: {interface} "
    "has no IP address]]",
    remedy=(
        RemedyStep(
            explanation="give the interface an address of the network of the other nodes",
            where="node {node}",
            command="ip -br address show {interface}; show_gids {device}",
        ),
        RemedyStep(
            explanation="or leave the port out where it is not meant for the job",
            where="every node",
            command="export NCCL_IB_HCA=^{names}",
        ),
    ),
)
def roce_without_address(rdma: PerNode[RdmaFacts], gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The GID table of each RoCE port that is ACTIVE: whether one of its entries of RoCE v2 belongs to an IPv4 address or
    to an IPv6 address that is not link-local. A warning for a node with GPUs in a job of several nodes that has no
    other RoCE or InfiniBand port to use, else information.
    ## Why it matters
    NCCL passes over link-local entries and falls back to entry 0, RoCE v1: connections then end with "Got completion
    with error 12", or ibv_modify_qp fails, on the first transfer between nodes.
    ## Check by hand
    `show_gids`, or `grep . /sys/class/infiniband/*/ports/1/gids/*` beside `gid_attrs/types`; `ip -br address`.
    ## When it is harmless
    For a port that only storage uses, or no job; and for tests between two machines with one cable.
    """
    for node, facts in rdma.items():
        bare = [port for port in facts.ports if _is_bare(port)]
        known = gpu.get(node)
        if not bare or known is None:
            continue
        names = [f"{port.device}:{port.port}" for port in bare]
        others = [p for p in facts.ports if p.state == "ACTIVE" and p.link_layer in {"InfiniBand", "Ethernet"}]
        is_alone = len(others) == len(bare)
        yield Hit(
            severity=Severity.WARNING if is_alone and known.visible and world.num_nodes > 1 else None,
            culprits=Culprits(nodes=(node,)),
            values={
                "node": world.label(node),
                "ports": listed([f"{port.device}/{port.port}" for port in bare], 4),
                "interface": bare[0].netdev or UNKNOWN,
                "device": bare[0].device,
                "names": ",".join(names[:8]),
            },
            evidence=seen(
                "/sys/class/infiniband",
                {node: "; ".join(f"{p.device}/{p.port}: {', '.join(p.gids[:4])}" for p in bare)},
            ),
        )


def _is_bare(port: RdmaPort) -> bool:
    """Whether a RoCE port that is up has entries of version 2, none of which leads beyond its link."""
    found = [gid for kind, gid in port.gid_types.values() if kind == VERSION_2]
    is_roce = port.link_layer == "Ethernet" and port.state == "ACTIVE"
    return is_roce and bool(found) and all(gid.lower().startswith(LINK_LOCAL) for gid in found)
