"""NET025."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import listed
from allready.model import Culprits, FaultClass, GpuFacts, Hit, PerNode, RdmaFacts, RemedyStep, Severity, World

VERBS = frozenset({"InfiniBand", "Ethernet"})
"""Link layers of ports that NCCL itself uses; other providers (EFA) come with a plugin and its libraries."""


@Rule(
    code="NET025",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_COMM,
    since="0.2",
    layer=Layer.READINESS,
    title="InfiniBand or RoCE is there, but processes here cannot use it",
    message="node {node}: {ports} is ACTIVE, but {lacking} is missing here: NCCL takes TCP sockets",
    remedy=(
        RemedyStep(
            explanation="install the libraries, also in the image of a container",
            where="node {node}",
            command="apt-get install -y libibverbs1 librdmacm1 ibverbs-providers",
        ),
        RemedyStep(
            explanation="give the container the devices, and memory that may be locked",
            where="node {node}",
            command="docker run --device /dev/infiniband --cap-add IPC_LOCK --ulimit memlock=-1",
        ),
    ),
)
def rdma_unusable(rdma: PerNode[RdmaFacts], gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Where an InfiniBand or RoCE port is ACTIVE: whether the loader finds libibverbs, and whether /dev/infiniband/uverbs*
    is there. A warning for a node with GPUs in a job of several nodes, else information.
    ## Why it matters
    A container sees the host's ports in /sys also when it cannot use them. NCCL then takes TCP sockets without a
    warning: ten to twenty times slower between nodes; and where only some nodes lack it, they do not connect at all.
    ## Check by hand
    `ldconfig -p | grep libibverbs`; `ls /dev/infiniband`; `ibv_devinfo`.
    ## When it is harmless
    Where the job shall not use these ports, or brings a libibverbs of its own.
    """
    for node, facts in rdma.items():
        active = [f"{p.device}/{p.port}" for p in facts.ports if p.state == "ACTIVE" and p.link_layer in VERBS]
        lacking = [
            name
            for name, has in (("libibverbs.so", facts.has_library), ("/dev/infiniband/uverbs*", facts.has_device_files))
            if has is False
        ]
        known = gpu.get(node)
        if active and lacking and known is not None:
            counts = bool(known.visible) and world.num_nodes > 1
            yield Hit(
                severity=Severity.WARNING if counts else None,
                culprits=Culprits(nodes=(node,)),
                values={"node": world.label(node), "ports": listed(active, 3), "lacking": ", ".join(lacking)},
                evidence=(
                    stated(
                        "/sys/class/infiniband",
                        "{ports}; missing: {missing}",
                        node_rank=node,
                        ports=", ".join(active[:8]),
                        missing=", ".join(lacking),
                    ),
                ),
            )
