"""CPUs for the ranks and their loaders."""

from collections.abc import Iterator

from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import seen
from allready.model import (
    Culprits,
    FaultClass,
    Hit,
    HostFacts,
    LaunchFacts,
    Loader,
    PerNode,
    RemedyStep,
    Severity,
    UsageFacts,
    World,
)
from allready.model.numbers import cpus_of


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


@Rule(
    code="LIM012",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_LIMIT,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    title="More DataLoader workers than CPUs",
    message="node {node}: {workers} workers of DataLoader in {programs} running programs share "
    "{num_cpus} CPUs ({cpus})",
    remedy=(
        RemedyStep(
            explanation="divide the CPUs: num_workers counts for each rank and each DataLoader; at most {share} here",
            where="node {node}",
        ),
        RemedyStep(
            explanation="see whether the workers wait for CPUs at all: those in state R compute",
            where="node {node}",
            command="ps -eo pid,ppid,stat,pcpu,comm | grep pt_data_worker",
        ),
    ),
)
def loader_workers(usage: PerNode[UsageFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Processes that run now and that torch named as workers of its DataLoader (pt_data_worker, in newer
    releases), against the CPUs on which the kernel lets them run. Programs with the same CPUs are counted together.
    ## Why it matters
    More workers than CPUs load no faster; they take CPU time from the ranks' own threads, memory, and places in the
    tables of processes and open files. The slowest rank holds up the others in every collective.
    ## Check by hand
    `ps -eo ppid,comm | grep -c pt_data_worker`; `grep Cpus_allowed_list /proc/PID/status`.
    ## When it is harmless
    When the workers mostly wait, for storage or for the GPU: that is why it is information only.
    """
    for node, facts in usage.items():
        groups: dict[str, list[Loader]] = {}
        for one in facts.loaders:
            groups.setdefault(one.cpus, []).append(one)
        for cpus, loaders in groups.items():
            num_workers, num_cpus = sum(one.num_workers for one in loaders), len(cpus_of(cpus))
            if not num_cpus or num_workers <= num_cpus:
                continue
            shown = (f"pid {one.pid}: {one.num_workers} ({one.command})" for one in loaders[:8])
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "workers": num_workers,
                    "programs": len(loaders),
                    "num_cpus": num_cpus,
                    "cpus": cpus,
                    "share": max(1, num_cpus // len(loaders)),
                },
                evidence=seen("/proc", {node: "; ".join(shown)}),
            )
