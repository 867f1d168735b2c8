from collections.abc import Iterator

from allready import model
from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import nccl_worked, wants_nccl
from allready.units import GIB, MIB, size

_HOPELESS_BYTES = 64 * MIB
_ENOUGH_BYTES = 16 * GIB


@Rule(
    code="LIM003",
    severity=model.Severity.ERROR,
    fault_class=model.FaultClass.ENV_LIMIT,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    title="The locked-memory limit (memlock) is too low for RDMA",
    message="node {node}: memlock is limited to {limit}, but NCCL must pin its buffers for the RDMA ports {ports}",
    remedy=(
        model.RemedyStep(explanation="check it under the job's launcher", where="node {node}", command="ulimit -l"),
        model.RemedyStep(
            explanation="raise it: Docker: --ulimit memlock=-1; systemd (slurmd, sshd, kubelet): "
            "LimitMEMLOCK=infinity, it ignores limits.conf; a login: memlock unlimited in /etc/security/limits.conf "
            "and a new session",
            where="node {node}",
        ),
    ),
)
def memlock(
    limits: model.PerNode[model.LimitFacts],
    launch: model.PerNode[model.LaunchFacts],
    rdma: model.PerNode[model.RdmaFacts],
    case: Analysis,
) -> Iterator[model.Hit]:
    """
    ## What it checks
    RLIMIT_MEMLOCK on nodes that have an active InfiniBand or RoCE port which NCCL will use: several nodes, the nccl
    backend, and NCCL_IB_DISABLE not set to 1. An error below 64 MiB (the usual defaults are 64 KiB and 8 MiB), unless
    NCCL transferred data in this check; a warning below 16 GiB, which is what AWS asks for with EFA.
    ## Why it matters
    Registering memory with the network card fails: "ibv_reg_mr failed with error Cannot allocate memory" or
    "ibv_create_cq() failed", on large jobs only after a while, because every peer needs more of it.
    ## Check by hand
    `ulimit -l` under the launcher (`srun bash -c 'ulimit -l'`), not in a login shell.
    ## When it is harmless
    When the process has CAP_IPC_LOCK, which lifts the limit, or the RDMA ports do not reach the other nodes.
    """
    gpu, env = case.facts(model.GpuFacts), case.facts(model.EnvFacts)
    for node, facts in limits.items() if case.world.num_nodes > 1 else ():
        limit = facts.memlock_bytes
        ports = [f"{p.device}:{p.port}" for p in rdma[node].ports if p.state == "ACTIVE"]
        disabled = node in env and env[node].variables.get("NCCL_IB_DISABLE") == "1"
        if limit is None or limit >= _ENOUGH_BYTES or not ports or disabled or not wants_nccl(node, launch, gpu):
            continue
        hopeless = limit < _HOPELESS_BYTES and not nccl_worked(case.collectives)
        yield model.Hit(
            severity=model.Severity.ERROR if hopeless else model.Severity.WARNING,
            confidence=model.Confidence.LIKELY if hopeless else model.Confidence.POSSIBLE,
            culprits=model.Culprits(nodes=(node,)),
            values={"node": case.world.label(node), "limit": size(limit), "ports": ", ".join(ports)},
            evidence=(stated("RLIMIT_MEMLOCK", "soft limit {limit} bytes", node_rank=node, limit=limit),),
        )
