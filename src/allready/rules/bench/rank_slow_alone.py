from collections.abc import Iterator
from statistics import median

from allready.judging.bandwidth import QUOTA, slow_alone
from allready.judging.registry import Layer, Rule
from allready.judging.values import rank_labels
from allready.model import (
    Collectives,
    Culprits,
    Evidence,
    FaultClass,
    Hit,
    ProcessState,
    RankState,
    RemedyStep,
    Severity,
    World,
)


@Rule(
    code="BEN003",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMP,
    layer=Layer.PACE,
    title="A rank is slow by itself",
    message="rank {ranks} {ranks:is/are} slow without the others: {what} {speed}, the others {others}",
    remedy=(
        RemedyStep(
            explanation="see what limits its CPU, and what else runs there",
            command="cat /sys/fs/cgroup/cpu.stat; uptime; top -b -n 1 | head -20",
        ),
        RemedyStep(
            explanation="for a GPU: read clocks, PCIe width and throttle reasons",
            command="nvidia-smi -q -d PERFORMANCE,CLOCK,PCI",
        ),
    ),
)
def rank_slow_alone(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Before the ranks are connected each measures its own copies: between memory and GPU (h2d, d2h), within the GPU
    (d2d), and additions on the CPU where there is no GPU (work).  A rank far below the median of the others, on at
    least three ranks, is slow by itself.  So is one that a CPU quota holds back for a quarter of the time or more, by
    the kernel's count for its control group (quota), while it holds back fewer than half of the ranks.
    ## Why it matters
    All others wait for it in every collective; it looks like a slow network, and no network setting helps.
    ## Check by hand
    The same copies on that node alone; for GPUs `nvbandwidth`.
    ## When it is harmless
    When something else runs on that node for a moment: run it again.
    """
    run = collectives.first
    if run is None:
        return
    named: set[int] = set()
    for what, ranks in slow_alone(run.copies_gb_per_s, run.held_share).items():
        slow = [rank for rank in ranks if rank not in named]
        if not slow:
            continue
        named.update(slow)
        if what == QUOTA:
            shown = {rank: f"{100 * run.held_share.get(rank, 0.0):.0f} %" for rank in run.copies_gb_per_s}
            worst, usual = shown[max(slow, key=lambda r: run.held_share[r])], "0 %"
        else:
            speeds = {rank: each[what] for rank, each in run.copies_gb_per_s.items() if what in each}
            shown = {rank: f"{speed:.3g} GB/s" for rank, speed in speeds.items()}
            worst, usual = shown[min(slow, key=lambda r: speeds[r])], f"{median(speeds.values()):.3g} GB/s"
        nodes = {n for r in slow if (n := world.node_of(r)) is not None}
        yield Hit(
            culprits=Culprits(ranks=tuple(slow), nodes=tuple(sorted(nodes))),
            values={
                "ranks": rank_labels(world, [_state(world, r) for r in slow]),
                "what": what,
                "speed": worst,
                "others": usual,
            },
            evidence=tuple(Evidence(source=f"rank {r}", text=f"{what} {shown[r]}") for r in slow[:8]),
        )


def _state(world: World, rank: int) -> RankState:
    return RankState(
        rank=rank, node_rank=world.node_of(rank) or 0, local_rank=0, pid=None, step="", state=ProcessState.UNKNOWN
    )
