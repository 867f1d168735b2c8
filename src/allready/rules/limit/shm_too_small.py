from collections.abc import Iterator

from allready import model
from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.values import nccl_worked, wants_nccl
from allready.rules.limit._shm import DOCKER_DEFAULT_BYTES, ROOMY_BYTES, needed_bytes, shm_evidence
from allready.units import size


@Rule(
    code="LIM001",
    severity=model.Severity.ERROR,
    fault_class=model.FaultClass.ENV_LIMIT,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    title="The size of /dev/shm is too small for this job",
    message="node {node}: /dev/shm has only {total} for {nproc} ranks and their DataLoader workers; it should have at "
    "least {wanted}",
    remedy=(
        model.RemedyStep(
            explanation="Docker: give the container more, or the host's (--ipc=host)",
            where="node {node}",
            command="docker run --shm-size=8g",
        ),
        model.RemedyStep(explanation="Kubernetes: mount an emptyDir with medium: Memory on /dev/shm"),
        model.RemedyStep(
            explanation="on the machine itself, as root",
            where="node {node}",
            command="mount -o remount,size=8g /dev/shm",
        ),
        model.RemedyStep(
            explanation="NCCL_SHM_DISABLE=1 only avoids NCCL's SHM transport, at the price of bandwidth inside the node"
        ),
    ),
)
def shm_too_small(
    limits: model.PerNode[model.LimitFacts], launch: model.PerNode[model.LaunchFacts], case: Analysis
) -> Iterator[model.Hit]:
    """
    ## What it checks
    The size of /dev/shm against what this job puts there, and against the 64 MiB that Docker gives by default. With
    more than one node, NCCL's proxy thread keeps a pool of operations in /dev/shm: 34,210,176 bytes a rank, measured
    with NCCL 2.28.9; 4 MiB a rank in the older releases. That is a lower bound: the SHM transport of NCCL before 2.24
    adds 9,637,888 bytes a connection and channel (buffers of 4 MiB, 4.7 MiB and 0.5 MiB for the protocols Simple, LL128
    and LL, and a header), and DataLoader workers pass every batch through /dev/shm. An error below that bound, or at 64
    MiB or less with several NCCL ranks on the node, unless NCCL transferred data in this check. A warning below 1 GiB
    (information for one rank without NCCL), unless that is the kernel's own default of half the memory.
    ## Why it matters
    One rank ends with "failed to extend /dev/shm/nccl-... No space left on device" or a bus error (SIGBUS), and the
    other ranks show only "Socket recv failed". DataLoader workers fail with a bus error later, under load.
    ## Check by hand
    `df -h /dev/shm` inside the container; `docker inspect CONTAINER | grep ShmSize` outside it.
    ## When it is harmless
    With one rank per node and no DataLoader workers, or on one node whose GPUs reach each other over NVLink.
    """
    host, gpu = case.facts(model.HostFacts), case.facts(model.GpuFacts)
    for node, facts in limits.items():
        nproc, total, needed = launch[node].nproc_per_node, facts.shm_total_bytes, needed_bytes(case, node, launch)
        memory = host[node].memory_bytes if node in host else None
        severity = _severity(total, needed, nproc, nccl=wants_nccl(node, launch, gpu))
        is_default = total is not None and memory is not None and total >= 0.45 * memory
        is_mild = severity in {model.Severity.WARNING, model.Severity.INFO}
        if severity is None or (is_mild and is_default):
            continue
        yield model.Hit(
            severity=model.Severity.WARNING if nccl_worked(case.collectives) else severity,
            confidence=model.Confidence.CERTAIN if total is None or total < needed else model.Confidence.LIKELY,
            culprits=model.Culprits(nodes=(node,)),
            values={
                "node": case.world.label(node),
                "total": size(total or 0),
                "nproc": nproc,
                "wanted": size(max(ROOMY_BYTES, needed)),
            },
            evidence=shm_evidence(node, facts, needed),
        )


def _severity(total: int | None, needed: int, nproc: int, *, nccl: bool) -> model.Severity | None:
    if total is None or total < needed or (nccl and nproc > 1 and total <= DOCKER_DEFAULT_BYTES):
        return model.Severity.ERROR if nccl else model.Severity.WARNING
    if total >= ROOMY_BYTES:
        return None
    # A lone rank without NCCL uses it for workers of a DataLoader, if at all: no fault of a plain container.
    return model.Severity.WARNING if nccl or nproc > 1 else model.Severity.INFO
