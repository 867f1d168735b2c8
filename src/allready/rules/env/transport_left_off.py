"""ENV010."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.nccl_defaults import nccl_nodes
from allready.judging.registry import Rule
from allready.judging.values import on_nodes
from allready.model import (
    Culprits,
    EnvFacts,
    Evidence,
    FaultClass,
    GpuFacts,
    Hit,
    LaunchFacts,
    PerNode,
    RdmaFacts,
    Severity,
    World,
)
from allready.rules.env._variables import is_on

INSIDE_A_NODE = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE")
INFINIBAND = "NCCL_IB_DISABLE"


@Rule(
    code="ENV010",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.READINESS,
    title="A fast transport of NCCL is switched off",
    message="{name}={value} on node {nodes} switches off a transport that this hardware has ({hardware})",
    remedy="unset {name}, and compare: allready check --isolate; if the job works only with it, the transport "
    "is broken, and that is the fault to mend",
)
def transport_left_off(
    env: PerNode[EnvFacts],
    world: World,
    launch: PerNode[LaunchFacts] | None = None,
    gpu: PerNode[GpuFacts] | None = None,
    rdma: PerNode[RdmaFacts] | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    NCCL_P2P_DISABLE and NCCL_SHM_DISABLE on nodes where the job uses several GPUs, and NCCL_IB_DISABLE on nodes of a
    job on several nodes that have an ACTIVE InfiniBand or RoCE port. Only for jobs that use NCCL.
    ## Why it matters
    These are set to get round a fault and then stay. Without P2P, GPUs of one node talk through host memory (a tenth
    of NVLink's bandwidth or less); without SHM too, through the network card; without InfiniBand, NCCL uses TCP, ten
    to twenty times slower.
    ## Check by hand
    `env | grep -E "NCCL_(P2P|SHM|IB)_DISABLE"`, and what /etc/nccl.conf and ~/.nccl.conf say; then `nvidia-smi topo
    -m`.
    ## When it is harmless
    When P2P is known to be broken on this board (ACS, IOMMU), or the InfiniBand ports are for storage only.
    """
    users = nccl_nodes(env, launch, gpu)
    for name in (*INSIDE_A_NODE, INFINIBAND):
        on: dict[int, str] = {}
        hardware: dict[int, str] = {}
        for node, facts in env.items():
            if not is_on(facts.variables.get(name)) or node not in users:
                continue
            what = _infiniband(node, rdma, world) if name == INFINIBAND else _gpus(node, gpu)
            if what:
                on[node], hardware[node] = facts.variables[name].strip(), what
        if not on:
            continue
        nodes = tuple(on)
        yield Hit(
            culprits=Culprits(nodes=nodes if len(nodes) < len(env) else (), variables=(name,)),
            values={
                "name": name,
                "value": on[nodes[0]],
                "nodes": on_nodes(world, nodes),
                "hardware": hardware[nodes[0]],
            },
            evidence=tuple(
                Evidence(source="environment", text=f"{name}={on[n]}; {hardware[n]}", node_rank=n) for n in nodes[:8]
            ),
        )


def _gpus(node: int, gpu: PerNode[GpuFacts] | None) -> str:
    facts = gpu.get(node) if gpu else None
    usable = [g.name for g in facts.gpus if g.index in facts.visible] if facts else []
    return f"{len(usable)} x {usable[0]}" if len(usable) > 1 else ""


def _infiniband(node: int, rdma: PerNode[RdmaFacts] | None, world: World) -> str:
    facts = rdma.get(node) if rdma else None
    active = [p for p in facts.ports if p.state == "ACTIVE"] if facts else []
    if not active or world.num_nodes < 2:
        return ""
    return ", ".join(f"{p.device}/{p.port} {p.link_layer}" for p in active[:2]) + (", …" if len(active) > 2 else "")
