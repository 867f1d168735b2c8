"""ENV016."""

from collections.abc import Iterator

from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import stated
from allready.model import (
    Culprits,
    EnvFacts,
    FaultClass,
    Hit,
    HostFacts,
    LaunchFacts,
    PerNode,
    RemedyStep,
    Severity,
    World,
)

NAME = "OMP_NUM_THREADS"
TOO_MANY = 2


@Rule(
    code="ENV016",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_LIMIT,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    title="More OpenMP threads than CPUs",
    message="node {node}: {nproc} ranks with OMP_NUM_THREADS={threads} each have more threads than the {cpus} "
    "available CPUs",
    remedy=(
        RemedyStep(
            explanation="divide the CPUs among the ranks", where="node {node}", command="export OMP_NUM_THREADS={share}"
        ),
    ),
)
def too_many_threads(
    env: PerNode[EnvFacts], host: PerNode[HostFacts], launch: PerNode[LaunchFacts], world: World
) -> Iterator[Hit]:
    """
    ## What it checks
    OMP_NUM_THREADS times the ranks of the node against the CPUs that may be used (affinity and quota): a
    warning from twice as many on.
    ## Why it matters
    Threads that share a CPU wait for each other at every barrier of OpenMP: operations on the CPU, data loading
    and optimizers take several times as long, and collectives wait for the rank.
    ## Check by hand
    `echo $OMP_NUM_THREADS; nproc`, under the launcher.
    ## When it is harmless
    When the ranks compute on GPUs only, and loaders set their own number.
    """
    for node, facts in env.items():
        threads = facts.variables.get(NAME, "").partition(",")[0].strip()
        cpus, nproc = host[node].num_cpus, launch[node].nproc_per_node
        if (
            threads.isdecimal()
            and len(threads) < 6
            and cpus
            and int(threads) * nproc >= TOO_MANY * cpus + 1
            and int(threads) > 1
        ):
            yield Hit(
                culprits=Culprits(nodes=(node,), variables=(NAME,)),
                values={
                    "node": world.label(node),
                    "threads": threads,
                    "nproc": nproc,
                    "cpus": cpus,
                    "share": max(1, cpus // nproc),
                },
                evidence=(
                    stated(
                        "environment",
                        "{name}={threads}, {num} usable CPUs",
                        node_rank=node,
                        name=NAME,
                        threads=threads,
                        num=cpus,
                    ),
                ),
            )
