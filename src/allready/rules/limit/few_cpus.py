from collections.abc import Iterator

from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import stated
from allready.model import Culprits, FaultClass, Hit, HostFacts, LaunchFacts, PerNode, RemedyStep, Severity, World


@Rule(
    code="LIM005",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_LIMIT,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    title="Fewer usable CPUs than ranks",
    message="node {node}: {nproc} ranks may use only {num_cpus} CPUs",
    remedy=(
        RemedyStep(
            explanation="give the job more CPUs: Slurm: --cpus-per-task; Docker: --cpus, --cpuset-cpus; Kubernetes: "
            "the CPU limit of the container; mpirun, which binds a task to a core: --bind-to none",
            where="node {node}",
        ),
        RemedyStep(
            explanation="without a scheduler, find what restricts it", where="node {node}", command="taskset -cp $$"
        ),
    ),
)
def few_cpus(host: PerNode[HostFacts], launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The CPUs that this process may use (affinity and cgroup quota, not what is installed) against the ranks of the node.
    ## Why it matters
    Every rank has a Python thread, and NCCL and Gloo have busy helper threads. Ranks that share a CPU wait for each
    other inside every collective: the job runs several times slower, and timeouts come near.
    ## Check by hand
    `nproc`; `cat /sys/fs/cgroup/cpu.max`; `taskset -cp $$`, each under the launcher.
    ## When it is harmless
    For a functional test, where speed does not matter.
    """
    for node, facts in host.items():
        nproc = launch[node].nproc_per_node
        if facts.num_cpus is not None and facts.num_cpus < nproc:
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={"node": world.label(node), "num_cpus": facts.num_cpus, "nproc": nproc},
                evidence=(stated("affinity and cgroup", "{num} usable CPUs", node_rank=node, num=facts.num_cpus),),
            )
