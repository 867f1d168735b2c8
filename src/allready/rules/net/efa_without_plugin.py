"""NET032."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import listed
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    GpuFacts,
    Hit,
    PerNode,
    RdmaFacts,
    RemedyStep,
    Severity,
    World,
)

EFA = "efa"


@Rule(
    code="NET032",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.READINESS,
    title="EFA is there, and NCCL has no plugin for it",
    message="node {node}: {count} EFA ports are ACTIVE ({ports}), and the loader finds no libnccl-net.so here: NCCL "
    "takes TCP sockets",
    remedy=(
        RemedyStep(
            explanation="where aws-ofi-nccl is installed, give the job its folders",
            where="every node",
            command="export LD_LIBRARY_PATH=/opt/amazon/ofi-nccl/lib:/opt/amazon/efa/lib:$LD_LIBRARY_PATH",
        ),
        RemedyStep(
            explanation="else install it, also in the image of a container; see then which network NCCL takes",
            where="node {node}",
            command="find / -name 'libnccl-net*.so' 2>/dev/null; NCCL_DEBUG=INFO python train.py 2>&1 | grep NET/",
        ),
    ),
)
def efa_without_plugin(rdma: PerNode[RdmaFacts], gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    For a job of several nodes with GPUs: whether the loader finds libnccl-net.so (the plugin aws-ofi-nccl) in its
    cache, in LD_LIBRARY_PATH or in the usual folders, where EFA ports are ACTIVE. NCCL itself cannot use them.
    ## Why it matters
    Without the plugin NCCL takes TCP sockets without a warning, far slower; where only some nodes have
    it, they do not connect.
    ## Check by hand
    `ldconfig -p | grep nccl-net`; `NCCL_DEBUG=INFO` prints `NET/OFI` where the plugin is in use.
    ## When it is harmless
    Where the job itself sets LD_LIBRARY_PATH or NCCL_NET_PLUGIN, or runs in another container.
    """
    for node, facts in rdma.items():
        ports = [f"{p.device}/{p.port}" for p in facts.ports if p.provider == EFA and p.state == "ACTIVE"]
        known = gpu.get(node)
        if ports and facts.has_net_plugin is False and world.num_nodes > 1 and known is not None and known.visible:
            yield Hit(
                confidence=Confidence.POSSIBLE,
                culprits=Culprits(nodes=(node,)),
                values={"node": world.label(node), "count": len(ports), "ports": listed(ports, 3)},
                evidence=(stated("loader", "{ports}; no libnccl-net.so", node_rank=node, ports=", ".join(ports[:8])),),
            )
