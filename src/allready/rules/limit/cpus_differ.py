from collections.abc import Iterator

from allready.judging.majority import Split
from allready.judging.node_split import brief, some
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import said
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, Hit, HostFacts, LaunchFacts, PerNode, RemedyStep, Severity, World

SMT_OFF = 0.5
"""A node whose simultaneous multithreading is off has this share of the CPUs of one where it is on."""


@Rule(
    code="LIM013",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    title="Nodes have different numbers of usable CPUs per rank",
    message="[[node {node}: fewer usable CPUs per rank than most nodes|usable CPUs per rank differ between nodes]]: "
    "{split}",
    remedy=(
        RemedyStep(
            explanation="compare what the machine has with what the launcher or container leaves of it",
            where="every node",
            command="lscpu | grep -E '^(CPU\\(s\\)|On-line|Thread)'; taskset -cp $$; cat /sys/fs/cgroup/cpu.max",
        ),
        RemedyStep(
            explanation="give every node the same: one setting of SMT (hyper-threading) and of isolcpus, one CPU limit "
            "and cpuset of the container, one --cpus-per-task"
        ),
    ),
)
def cpus_differ(host: PerNode[HostFacts], launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The CPUs that each node's ranks may use (affinity and cgroup quota, not what is installed), divided by the ranks of
    the node. Information; a warning where a node has at most half of what most nodes have.
    ## Why it matters
    Data loaders, NCCL's proxy threads and Python share these CPUs. The ranks of a node that has fewer of them are late
    in every collective, and the job runs at their pace. The usual reasons are SMT (hyper-threading) that is off on one
    node, a CPU limit of one pod, and a task that its launcher bound to fewer cores.
    ## Check by hand
    `nproc` under the launcher, and `lscpu`, on every node.
    ## When it is harmless
    When the ranks need few CPUs (no DataLoader workers, data already on the GPU); or when the node that differs has
    more: then it is not named.
    """
    share = {
        n: facts.num_cpus / launch[n].nproc_per_node
        for n, facts in host.items()
        if facts.num_cpus is not None and n in launch
    }
    shown = {n: f"{value:.4g}" for n, value in share.items()}
    split = Split.by(shown, num_members=world.num_nodes)
    if len(split) < 2:
        return
    others = split.outliers()
    most = share[split.groups[0][1][0]]
    fewer = tuple(n for n in others if share[n] < most)
    yield Hit(
        severity=Severity.WARNING if any(share[n] <= SMT_OFF * most for n in fewer) else None,
        culprits=Culprits(nodes=fewer),
        values={"node": world.labels(fewer) or None, "split": brief(split)},
        evidence=seen(
            "affinity and cgroup",
            {
                n: said("{num} usable CPUs for {nproc} ranks", num=host[n].num_cpus, nproc=launch[n].nproc_per_node)
                for n in some(share, others)
            },
        ),
    )
