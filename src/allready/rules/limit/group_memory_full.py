"""LIM008."""

from collections.abc import Iterator

from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import said
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, Hit, PerNode, RemedyStep, Severity, UsageFacts, World
from allready.units import size

HIGH_SHARE = 0.9


@Rule(
    code="LIM008",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_LIMIT,
    since="0.2",
    layer=Layer.ENVIRONMENT,
    applies=Applies.FACTS,
    title="The memory limit of the container is nearly reached",
    message="node {node}: {used} of the {limit} that its control group may use are in use, caches not counted",
    remedy=(
        RemedyStep(
            explanation="see which processes take it",
            where="node {node}",
            command="ps -eo pid,ppid,rss,stat,args --sort=-rss | head",
        ),
        RemedyStep(
            explanation="end what is left over, or raise the limit: Docker: --memory; Kubernetes: limits.memory; "
            "Slurm: --mem",
            where="node {node}",
        ),
    ),
)
def group_memory_full(usage: PerNode[UsageFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The memory of this process's control group, and of those above it, against their limits: a warning from 90 %.
    Pages of files that the kernel can drop at once are not counted.
    ## Why it matters
    A job that starts now will be killed by the kernel (exit code -9 or 137) as soon as its loaders fill their queues;
    the other ranks see only that a connection was closed.
    ## Check by hand
    `cd /sys/fs/cgroup && cat memory.max memory.current memory.stat`.
    ## When it is harmless
    When it is the job itself, which has all its memory already. Files in /dev/shm count as memory.
    """
    for node, facts in usage.items():
        limit, used = facts.memory_limit_bytes, facts.memory_used_bytes
        if limit and used is not None and used >= HIGH_SHARE * limit:
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={"node": world.label(node), "used": size(used), "limit": size(limit)},
                evidence=seen(
                    "memory of the control group", {node: said("{used} of {limit} B", used=used, limit=limit)}
                ),
            )
