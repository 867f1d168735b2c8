"""LIM011."""

from collections.abc import Iterator

from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import stated
from allready.model import Culprits, FaultClass, Hit, PerNode, RemedyStep, Severity, UsageFacts, World

MANY = 100


@Rule(
    code="LIM011",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_LIMIT,
    since="0.2",
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    title="Many processes have ended and are not reaped",
    message="node {node}: {count} processes are zombies; {own} of them are children of {parent}, "
    "which does not reap them",
    remedy=(
        RemedyStep(
            explanation="in a container, let an init be its first process (docker run --init; Kubernetes: "
            "shareProcessNamespace, or tini in the image)",
            where="node {node}",
        ),
        RemedyStep(
            explanation="else end their parent; a zombie itself cannot be killed",
            where="node {node}",
            command="ps -o pid,stat,args --ppid {pid}",
        ),
    ),
)
def many_zombies(usage: PerNode[UsageFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether a hundred processes or more have ended without being reaped by their parent, and who that is.
    ## Why it matters
    Each keeps its place in the table of processes: the container comes to its limit, and then no rank, data loader or
    thread can be started ("Resource temporarily unavailable").
    ## Check by hand
    `ps -eo pid,ppid,stat,comm | awk '$3 ~ /^Z/'`.
    ## When it is harmless
    While a program that starts many children is about to reap them.
    """
    for node, facts in usage.items():
        parent = facts.zombie_parent
        if facts.num_zombies is not None and facts.num_zombies >= MANY and parent is not None:
            name = f"pid {parent.pid}" + (f" ({parent.command})" if parent.command else "")
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "count": facts.num_zombies,
                    "own": facts.num_parents_zombies,
                    "parent": name,
                    "pid": parent.pid or "PID",
                },
                evidence=(
                    stated(
                        "/proc",
                        "{num} zombies, {own} of {parent}",
                        node_rank=node,
                        num=facts.num_zombies,
                        own=facts.num_parents_zombies,
                        parent=name,
                    ),
                ),
            )
