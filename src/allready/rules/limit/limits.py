"""Limits of the kernel for a process."""

import math
from collections.abc import Iterator

from allready import model
from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import nccl_worked, wants_nccl
from allready.model import (
    Culprits,
    EnvFacts,
    FaultClass,
    GpuFacts,
    Hit,
    LaunchFacts,
    LimitFacts,
    PerNode,
    RdmaFacts,
    RemedyStep,
    Severity,
)
from allready.units import GIB, MIB, size

_DEFAULT = 1024
_BARE_PROCESS = 32
_CUDA_PROCESS = 128
_NUM_GROUPS = 4
_P2P_CHANNELS = 2


@Rule(
    code="LIM004",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_LIMIT,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    title="The open-files limit (nofile) is low",
    message="node {node}: a process may open {soft} files (hard limit {hard}), but a rank of this job with "
    "{world_size} ranks may need {wanted}",
    remedy=(
        RemedyStep(explanation="raise it before the start", where="node {node}", command="ulimit -n {fit}"),
        RemedyStep(
            explanation="or permanently: Docker: --ulimit nofile=1048576; systemd: LimitNOFILE=1048576; beyond the "
            "hard limit root must raise it in /etc/security/limits.conf",
            where="node {node}",
        ),
    ),
)
def nofile(limits: PerNode[LimitFacts], launch: PerNode[LaunchFacts], case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    The soft limit of open files (RLIMIT_NOFILE) against the sockets of one rank. At least: 32 files for a process with
    torch (128 with CUDA) and two for every other rank, measured with torch 2.13 and Gloo on the rank that holds the
    store: its Gloo group is a full mesh, and every rank is a client of the store. Less is an error. Comfortable: 256,
    four groups in full mesh, and over sockets for every rank on another node NCCL's two directions of two channels,
    each with NCCL_NSOCKS_PERTHREAD x NCCL_SOCKET_NTHREADS data sockets and one for control, as all_to_all needs them.
    Less than that, or less than the customary 1024, is a warning.
    ## Why it matters
    "Too many open files" ends one rank at the first collective that connects all ranks with each other, or a
    DataLoader, which passes one file for every tensor. The other ranks only see closed connections.
    ## Check by hand
    `ulimit -Sn; ulimit -Hn` under the launcher; `ls /proc/PID/fd | wc -l` of a rank that runs.
    ## When it is harmless
    When the script raises the soft limit itself (`resource.setrlimit`) and the hard limit is high enough.
    """
    world, gpu, rdma, env = case.world, case.facts(GpuFacts), case.facts(RdmaFacts), case.facts(EnvFacts)
    for node, facts in limits.items():
        soft, hard, job = facts.nofile_soft, facts.nofile_hard, launch[node]
        if soft is None:
            continue
        nccl = wants_nccl(node, launch, gpu)
        others = world.world_size - 1
        least = (_CUDA_PROCESS if nccl else _BARE_PROCESS) + 2 * others
        has_rdma = node in rdma and any(p.state == "ACTIVE" for p in rdma[node].ports)
        per_peer = 2 * _P2P_CHANNELS * (_sockets(env.get(node)) + 1) if nccl and not has_rdma else 0
        wanted = 256 + _NUM_GROUPS * others + per_peer * max(0, world.world_size - job.nproc_per_node)
        if soft >= max(wanted, _DEFAULT):
            continue
        fit = max(_DEFAULT, 1 << wanted.bit_length())
        yield Hit(
            severity=Severity.ERROR if soft < least else Severity.WARNING,
            culprits=Culprits(nodes=(node,)),
            values={
                "node": world.label(node),
                "soft": soft,
                "hard": "unlimited" if hard is None else hard,
                "world_size": world.world_size,
                "wanted": max(wanted, least),
                "fit": min(hard, fit) if hard is not None and hard > soft else fit,
            },
            evidence=(
                stated(
                    "RLIMIT_NOFILE",
                    "soft {soft}, hard {hard}; at least {least}",
                    node_rank=node,
                    soft=soft,
                    hard="unlimited" if hard is None else hard,
                    least=least,
                ),
            ),
        )


def _sockets(env: EnvFacts | None) -> int:
    variables = env.variables if env else {}
    factors = (variables.get(n, "1") for n in ("NCCL_NSOCKS_PERTHREAD", "NCCL_SOCKET_NTHREADS"))
    return min(math.prod(int(f) if f.isascii() and f.isdigit() and 0 < int(f) <= 64 else 1 for f in factors), 64)


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
