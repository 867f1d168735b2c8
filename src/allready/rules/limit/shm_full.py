from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.values import nccl_worked
from allready.model import Culprits, FaultClass, Hit, LaunchFacts, LimitFacts, PerNode, RemedyStep, Severity
from allready.rules.limit._shm import DOCKER_DEFAULT_BYTES, needed_bytes, shm_evidence
from allready.units import MIB, size

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
