"""LIM012."""

from collections.abc import Iterator

from allready.judging.cpus import cpus_of
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, Hit, Loader, PerNode, RemedyStep, Severity, UsageFacts, World


@Rule(
    code="LIM012",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_LIMIT,
    since="0.2",
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
