"""LIM003."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.judging.values import GIB, MIB, nccl_worked, size, wants_nccl
from allready.model import (
    Collectives,
    Confidence,
    Culprits,
    EnvFacts,
    Evidence,
    FaultClass,
    GpuFacts,
    Hit,
    LaunchFacts,
    LimitFacts,
    PerNode,
    RdmaFacts,
    RemedyStep,
    Severity,
    World,
)

_HOPELESS_BYTES = 64 * MIB
_ENOUGH_BYTES = 16 * GIB


@Rule(
    code="LIM003",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_LIMIT,
    since="0.1",
    layer=Layer.READINESS,
    title="The limit of locked memory is too low for RDMA",
    message="node {node}: memlock is limited to {limit}, but NCCL must pin its buffers for the RDMA ports {ports}",
    remedy=(
        RemedyStep(
            explanation="check it where the job really starts",
            where="node {node}",
            command="ulimit -l",
        ),
        RemedyStep(
            explanation="raise it: Docker: --ulimit memlock=-1; systemd (slurmd, sshd, kubelet): "
            "LimitMEMLOCK=infinity, it ignores limits.conf; a login: memlock unlimited in "
            "/etc/security/limits.conf and a new session",
            where="node {node}",
        ),
    ),
)
def memlock(
    limits: PerNode[LimitFacts],
    launch: PerNode[LaunchFacts],
    rdma: PerNode[RdmaFacts],
    world: World,
    gpu: PerNode[GpuFacts] | None = None,
    env: PerNode[EnvFacts] | None = None,
    collectives: Collectives | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    RLIMIT_MEMLOCK on nodes that have an active InfiniBand or RoCE port which NCCL will use: several nodes, NCCL asked
    for, and NCCL_IB_DISABLE not set to 1.  An error below 64 MiB (the usual defaults are 64 KiB and 8 MiB), unless NCCL
    moved data in this very check; a warning below 16 GiB, which is what AWS asks for with EFA.
    ## Why it matters
    Registering memory with the network card fails: "ibv_reg_mr failed with error Cannot allocate memory" or
    "ibv_create_cq() failed", on large jobs only after a while, because every peer needs more of it.
    ## Check by hand
    `ulimit -l` under the launcher (`srun bash -c 'ulimit -l'`), not in a login shell.
    ## When it is harmless
    When the process has CAP_IPC_LOCK, which lifts the limit, or the RDMA ports do not reach the other nodes.
    """
    for node, facts in limits.items():
        limit = facts.memlock_bytes
        variables = (env.get(node) if env else None) or EnvFacts(variables={})
        ports = [f"{p.device}:{p.port}" for p in rdma[node].ports if p.state == "ACTIVE"]
        if limit is None or limit >= _ENOUGH_BYTES or not ports or world.num_nodes < 2:
            continue
        if not wants_nccl(node, launch, gpu) or variables.variables.get("NCCL_IB_DISABLE") == "1":
            continue
        hopeless = limit < _HOPELESS_BYTES and not nccl_worked(collectives)
        yield Hit(
            severity=Severity.ERROR if hopeless else Severity.WARNING,
            confidence=Confidence.LIKELY if hopeless else Confidence.POSSIBLE,
            culprits=Culprits(nodes=(node,)),
            values={"node": world.label(node), "limit": size(limit), "ports": ", ".join(ports)},
            evidence=(Evidence(source="RLIMIT_MEMLOCK", node_rank=node, text=f"soft limit {limit} bytes"),),
        )
