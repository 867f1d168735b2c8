"""LIM001."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.judging.values import nccl_worked, size, wants_nccl
from allready.model import (
    Collectives,
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    GpuFacts,
    Hit,
    HostFacts,
    LaunchFacts,
    LimitFacts,
    PerNode,
    RemedyStep,
    Severity,
    SoftwareFacts,
    World,
)
from allready.rules.limit._shm import DOCKER_DEFAULT_BYTES, ROOMY_BYTES, needed_bytes


@Rule(
    code="LIM001",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_LIMIT,
    since="0.1",
    layer=Layer.READINESS,
    title="The file system /dev/shm is too small",
    message="node {node}: /dev/shm holds {total} in all for {nproc} ranks and their DataLoader workers; "
    "it should hold at least {wanted}",
    remedy=(
        RemedyStep(
            explanation="Docker: give the container more, or the host's (--ipc=host)",
            where="node {node}",
            command="docker run --shm-size=8g",
        ),
        RemedyStep(
            explanation="Kubernetes: mount an emptyDir with medium: Memory on /dev/shm",
        ),
        RemedyStep(
            explanation="on the machine itself, as root",
            where="node {node}",
            command="mount -o remount,size=8g /dev/shm",
        ),
        RemedyStep(
            explanation="NCCL_SHM_DISABLE=1 only avoids NCCL's SHM transport, at the price of bandwidth inside "
            "the node",
        ),
    ),
)
def shm_too_small(
    limits: PerNode[LimitFacts],
    launch: PerNode[LaunchFacts],
    world: World,
    gpu: PerNode[GpuFacts] | None = None,
    host: PerNode[HostFacts] | None = None,
    software: PerNode[SoftwareFacts] | None = None,
    collectives: Collectives | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    The size of /dev/shm against what this job puts there, and against the 64 MiB that Docker gives by default.
    With more than one node, NCCL's proxy thread keeps a pool of operations in /dev/shm: 34,210,176 bytes a rank,
    measured with NCCL 2.28.9; 4 MiB a rank in the older releases whose source we read.  That is a lower bound: the SHM
    transport of NCCL before 2.24 adds 9,637,888 bytes a connection and channel (buffers of 4 MiB, 4.7 MiB and 0.5 MiB
    for the protocols Simple, LL128 and LL, and a header), and DataLoader workers pass every batch through /dev/shm.
    An error below that bound, or at 64 MiB or less with several NCCL ranks on the node, unless NCCL moved data in this
    very check.  A warning below 1 GiB, unless that is the kernel's own default of half the memory.
    ## Why it matters
    One rank ends with "failed to extend /dev/shm/nccl-... No space left on device" or a bus error (SIGBUS), and the
    other ranks show only "Socket recv failed".  DataLoader workers die with a bus error later, under load.
    ## Check by hand
    `df -h /dev/shm` inside the container; `docker inspect CONTAINER | grep ShmSize` outside it.
    ## When it is harmless
    With one rank per node and no DataLoader workers, or on one node whose GPUs reach each other over NVLink.
    """
    for node, facts in limits.items():
        job = launch[node]
        nccl = wants_nccl(node, launch, gpu)
        needed = needed_bytes(job, world, software.get(node) if software else None) if nccl else 0
        total = facts.shm_total_bytes
        severity = _severity(total, needed, job.nproc_per_node, nccl=nccl)
        if severity is None or (severity is Severity.WARNING and _is_half_of_memory(total, host, node)):
            continue
        yield Hit(
            severity=Severity.WARNING if nccl_worked(collectives) else severity,
            confidence=Confidence.CERTAIN if total is None or total < needed else Confidence.LIKELY,
            culprits=Culprits(nodes=(node,)),
            values={
                "node": world.label(node),
                "total": size(total or 0),
                "nproc": job.nproc_per_node,
                "wanted": size(max(ROOMY_BYTES, needed)),
            },
            evidence=(
                Evidence(
                    source="statvfs /dev/shm",
                    node_rank=node,
                    text="there is no /dev/shm"
                    if total is None
                    else f"total {total} bytes, free {facts.shm_free_bytes} bytes; "
                    f"NCCL's lower bound here: {needed} bytes",
                ),
            ),
        )


def _severity(total: int | None, needed: int, nproc: int, *, nccl: bool) -> Severity | None:
    if total is None or total < needed or (nccl and nproc > 1 and total <= DOCKER_DEFAULT_BYTES):
        return Severity.ERROR if nccl else Severity.WARNING
    return Severity.WARNING if total < ROOMY_BYTES else None


def _is_half_of_memory(total: int | None, host: PerNode[HostFacts] | None, node: int) -> bool:
    facts = host.get(node) if host else None
    memory = facts.memory_bytes if facts else None
    return total is not None and memory is not None and total >= 0.45 * memory
