"""What a job needs in /dev/shm: its size and its fill."""

import re
from collections.abc import Iterator

from allready import model
from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import nccl_worked, wants_nccl
from allready.model import (
    Culprits,
    Evidence,
    FaultClass,
    GpuFacts,
    Hit,
    LaunchFacts,
    LimitFacts,
    PerNode,
    RemedyStep,
    Severity,
    SoftwareFacts,
)
from allready.units import GIB, MIB, size

DOCKER_DEFAULT_BYTES = 64 * MIB
ROOMY_BYTES = GIB

PROXY_POOL_BYTES = 34_210_176
"""One rank's pool of proxy operations, as NCCL 2.28.9 asks for it when a network transport is set up (measured)."""

OLD_PROXY_POOL_BYTES = 4 * MIB
"""The same in the releases with 64 B an operation and 1,024 operations for each of 64 local ranks."""


def needed_bytes(case: Analysis, node: int, launch: PerNode[LaunchFacts]) -> int:
    """Lower bound of what NCCL puts into one node's /dev/shm; 0 on a single node, where it may need nothing."""
    if case.world.num_nodes < 2 or not wants_nccl(node, launch, case.facts(GpuFacts)):
        return 0
    software = case.facts(SoftwareFacts).get(node)
    found = re.match(r"(\d+)\.(\d+)", (software.versions.get("nccl") or "") if software else "")
    is_new = found is not None and (int(found[1]), int(found[2])) >= (2, 28)
    return launch[node].nproc_per_node * (PROXY_POOL_BYTES if is_new else OLD_PROXY_POOL_BYTES)


def shm_evidence(node: int, facts: LimitFacts, needed: int) -> tuple[Evidence, ...]:
    """Size and free space of a node's /dev/shm, beside what NCCL needs there."""
    total, free = facts.shm_total_bytes, facts.shm_free_bytes
    form = "there is no /dev/shm"
    if total is not None:
        form = "total {total} bytes, free {free} bytes; NCCL's lower bound here: {needed} bytes"
    return (stated("statvfs /dev/shm", form, total=total, free=free, needed=needed, node_rank=node),)


_LITTLE_BYTES = 512 * MIB
_LITTLE_SHARE = 0.05


@Rule(
    code="LIM002",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_LIMIT,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    title="The file system at /dev/shm is nearly full",
    message="node {node}: only {free} of {total} in /dev/shm are free; something else fills it",
    remedy=RemedyStep(
        explanation="see what fills it and which process holds it; files called nccl-* and torch_* that no process "
        "holds are left over from a dead job and can be removed",
        where="node {node}",
        command="ls -laS /dev/shm | head; fuser -v /dev/shm/*",
    ),
)
def shm_full(limits: PerNode[LimitFacts], launch: PerNode[LaunchFacts], case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    The free space in a /dev/shm that is large enough by itself: a warning below 5 % and 512 MiB, an error when NCCL's
    lower bound for this job (see LIM001) no longer fits.
    ## Why it matters
    A full /dev/shm fails like a small one: "No space left on device" or a bus error on one rank, and closed connections
    on the others. Usually a job was killed and left its segments behind.
    ## Check by hand
    `df -h /dev/shm` and `ls -laS /dev/shm | head`.
    ## When it is harmless
    When what fills it belongs to this job and will not grow.
    """
    for node, facts in limits.items():
        total, free = facts.shm_total_bytes, facts.shm_free_bytes
        if total is None or free is None or total <= DOCKER_DEFAULT_BYTES:
            continue
        needed = needed_bytes(case, node, launch)
        does_not_fit = free < needed <= total
        if does_not_fit or free < min(_LITTLE_BYTES, _LITTLE_SHARE * total):
            is_error = does_not_fit and not nccl_worked(case.collectives)
            yield Hit(
                severity=Severity.ERROR if is_error else Severity.WARNING,
                culprits=Culprits(nodes=(node,)),
                values={"node": case.world.label(node), "free": size(free), "total": size(total)},
                evidence=shm_evidence(node, facts, needed),
            )


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
