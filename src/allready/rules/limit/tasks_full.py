"""LIM010."""

from collections.abc import Iterator

from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import said
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, Hit, LaunchFacts, LimitFacts, PerNode, RemedyStep, Severity, World

PER_RANK = 64
MIN_PER_RANK = 8


@Rule(
    code="LIM010",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_LIMIT,
    since="0.2",
    layer=Layer.ENVIRONMENT,
    applies=Applies.FACTS,
    title="The limit of processes and threads is nearly reached",
    message="node {node}: {used} of {limit} processes and threads of this container are in use; {nproc} ranks may"
    " need {wanted} more",
    remedy=(
        RemedyStep(
            explanation="raise the limit: Docker: --pids-limit; Kubernetes: podPidsLimit of the kubelet; systemd: "
            "TasksMax",
            where="node {node}",
        ),
        RemedyStep(
            explanation="see which programs have the most threads",
            where="node {node}",
            command="ps -eLo pid,comm | sort | uniq -c | sort -n | tail",
        ),
    ),
)
def tasks_full(limits: PerNode[LimitFacts], launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The limit of the control group on processes and threads (pids.max) against what is in use. A warning where
    fewer than 64 per rank are left, an error where fewer than 8 are.
    ## Why it matters
    A rank has 30 to 200 threads (OpenMP, NCCL, loaders, the autograd engine). At the limit one ends with "can't
    start new thread" or "Resource temporarily unavailable", the others wait.
    ## Check by hand
    `cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids.current`.
    ## When it is harmless
    For a single small rank without loader processes.
    """
    for node, facts in limits.items():
        if facts.max_tasks is None or facts.num_tasks is None:
            continue
        nproc = launch[node].nproc_per_node
        left = facts.max_tasks - facts.num_tasks
        if left < PER_RANK * nproc:
            yield Hit(
                severity=Severity.ERROR if left < MIN_PER_RANK * nproc else None,
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "used": facts.num_tasks,
                    "limit": facts.max_tasks,
                    "nproc": nproc,
                    "wanted": PER_RANK * nproc,
                },
                evidence=seen(
                    "pids.max", {node: said("{used} of {limit}", used=facts.num_tasks, limit=facts.max_tasks)}
                ),
            )
