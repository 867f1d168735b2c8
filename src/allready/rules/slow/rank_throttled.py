"""SLW002."""

from collections.abc import Iterator

from allready.model import Aftermath, Confidence, Culprits, Evidence, FaultClass, Hit, Live, Severity, World
from allready.rules._live import named
from allready.rules.registry import Rule
from allready.rules.slow._decide import decide
from allready.rules.slow._pace import percent, throttled_share, told


@Rule(
    code="SLW002",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMP,
    since="0.1",
    depth=60,
    title="A CPU quota holds one rank back, and all others wait for it",
    message="the others wait for {who} during {share} of the time: the CPU quota of its control group stops it for "
    "{throttled} of the time",
    remedy="give {who} more CPU: raise or remove the quota (`cat /sys/fs/cgroup/cpu.max` and `cpu.stat`, `docker "
    "update --cpus`, resources.limits.cpu in Kubernetes), or start fewer threads and loader workers",
)
def rank_throttled(live: Live, world: World, after: Aftermath) -> Iterator[Hit]:
    """
    ## What it checks
    When each rank entered each operation, on clocks that were compared, and how much of the time the kernel held
    the rank's control group back (nr_throttled, throttled_time).
    ## Why it matters
    Collectives go at the pace of the slowest rank. A quota stops all threads of the rank for the rest of each
    period of 100 ms, however idle the machine is.
    ## Check by hand
    `cat /sys/fs/cgroup/cpu.stat` of the rank's control group, twice: `nr_throttled` grows.
    ## When it is harmless
    When the job is meant to run within that quota and its speed is accepted.
    """
    slow = decide(live, after).because("throttled")
    if not slow:
        return
    ranks = tuple(sorted(s.rank for s in slow))
    yield Hit(
        culprits=Culprits(ranks=ranks),
        values={
            "who": named(live, world, ranks),
            "share": percent(slow[0].share),
            "late": f"{slow[0].late_s * 1000:.1f}",
            "throttled": percent(max(throttled_share(live, r) for r in ranks)),
        },
        confidence=Confidence.CERTAIN,
        evidence=(
            *(
                Evidence(source=f"rank {r}, cpu.stat", text=f"held back {throttled_share(live, r):.0%} of the time")
                for r in ranks[:4]
            ),
            *told(slow),
        ),
    )
