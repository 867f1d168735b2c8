"""What is full on a node, or nearly."""

from collections.abc import Iterator

from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import said, stated
from allready.judging.values import seen
from allready.model import (
    Culprits,
    FaultClass,
    Hit,
    LaunchFacts,
    LimitFacts,
    PerNode,
    RemedyStep,
    Severity,
    UsageFacts,
    Volume,
    World,
)
from allready.units import GIB, MIB, size

FULL_BYTES = 16 * MIB
LOW_BYTES = 2 * GIB
LOW_DISK_SHARE, FULL_DISK_SHARE = 0.02, 0.1


@Rule(
    code="LIM006",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_LIMIT,
    layer=Layer.ENVIRONMENT,
    applies=Applies.FACTS,
    title="A file system that jobs write to is full",
    message="node {node}: of {total} behind {path}, {free} are free[[ and {inodes} inodes]]",
    remedy=(
        RemedyStep(
            explanation="see what takes the space",
            where="node {node}",
            command="df -h {path}; df -i {path}; du -xh -d1 {path} 2>/dev/null | sort -h | tail",
        ),
        RemedyStep(
            explanation="or have temporary files elsewhere", where="node {node}", command="export TMPDIR=FOLDER"
        ),
    ),
)
def disk_full(usage: PerNode[UsageFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Space and inodes that users may still take, behind the working folder, TMPDIR (or /tmp) and the home folder. A
    warning below 2 % and 2 GiB, an error below 10 % and 16 MiB or without a free inode. File systems that are mounted
    read-only are passed over.
    ## Why it matters
    The checkpoint of one rank fails with "No space left on device" while the others wait in the barrier after it,
    until their timeout. Compilers' caches, logs and dumps fail in the same way.
    ## Check by hand
    `df -h . /tmp $HOME; df -i . /tmp $HOME`; on file systems with quotas: `quota -s`.
    ## When it is harmless
    When the job writes to another file system only, and its caches (Triton, torch_extensions) lie there as well.
    """
    for node, facts in usage.items():
        for volume in facts.volumes:
            if not volume.is_read_only and (is_full := _is_full(volume)) is not None:
                yield Hit(
                    severity=Severity.ERROR if is_full else None,
                    culprits=Culprits(nodes=(node,)),
                    values={
                        "node": world.label(node),
                        "path": volume.path,
                        "total": size(volume.total_bytes),
                        "free": size(volume.free_bytes),
                        "inodes": volume.num_free_inodes,
                    },
                    evidence=seen(
                        f"statvfs {volume.path}",
                        {node: said("{free} of {total} B free", free=volume.free_bytes, total=volume.total_bytes)},
                    ),
                )


def _is_full(volume: Volume) -> bool | None:
    """True: nothing fits any more; False: nearly; None: there is room."""
    if volume.total_bytes <= 0:
        return None  # of a kind that does not count
    share = volume.free_bytes / volume.total_bytes
    if share < FULL_DISK_SHARE and volume.free_bytes < FULL_BYTES:
        return True
    if volume.num_inodes and volume.num_free_inodes == 0:
        return True
    return False if share < LOW_DISK_SHARE and volume.free_bytes < LOW_BYTES else None


HIGH_TRACKING_SHARE, FULL_TRACKING_SHARE = 0.8, 0.98


@Rule(
    code="LIM007",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_LIMIT,
    layer=Layer.ENVIRONMENT,
    applies=Applies.FACTS,
    title="The table of tracked connections is nearly full",
    message="node {node}: the packet filter tracks {count} connections of {most} at most, and then drops new ones",
    remedy=(
        RemedyStep(
            explanation="raise the limit, as root",
            where="node {node}",
            command="sysctl -w net.netfilter.nf_conntrack_max={wanted}",
        ),
        RemedyStep(
            explanation="and see which peers take the places",
            where="node {node}",
            command="conntrack -L 2>/dev/null | grep -o 'src=[^ ]*' | sort | uniq -c | sort -n | tail",
        ),
    ),
)
def tracking_full(usage: PerNode[UsageFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    `nf_conntrack_count` against `nf_conntrack_max` of this network namespace: a warning from 80 %, an error from 98
    %.
    ## Why it matters
    At the limit the kernel drops the first packet of every new connection without an answer ("nf_conntrack: table
    full, dropping packet" in the kernel log). A job starts or reconnects slowly, or some pairs of ranks never
    connect, while connections that exist work on.
    ## Check by hand
    `sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max`; `dmesg | grep conntrack`.
    ## When it is harmless
    When the node opens no further connections.
    """
    for node, facts in usage.items():
        if facts.num_tracked is None or not facts.max_tracked:
            continue
        share = facts.num_tracked / facts.max_tracked
        if share >= HIGH_TRACKING_SHARE:
            yield Hit(
                severity=Severity.ERROR if share >= FULL_TRACKING_SHARE else None,
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "count": facts.num_tracked,
                    "most": facts.max_tracked,
                    "wanted": 4 * facts.max_tracked,
                },
                evidence=seen(
                    "nf_conntrack", {node: said("{used} of {limit}", used=facts.num_tracked, limit=facts.max_tracked)}
                ),
            )


PER_RANK = 64
MIN_PER_RANK = 8


@Rule(
    code="LIM010",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_LIMIT,
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


MANY = 100


@Rule(
    code="LIM011",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_LIMIT,
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


HIGH_MEMORY_SHARE = 0.9


@Rule(
    code="LIM008",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_LIMIT,
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
        if limit and used is not None and used >= HIGH_MEMORY_SHARE * limit:
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={"node": world.label(node), "used": size(used), "limit": size(limit)},
                evidence=seen(
                    "memory of the control group", {node: said("{used} of {limit} B", used=used, limit=limit)}
                ),
            )
