"""SLW002."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import Confidence, FaultClass, Hit, Live, Severity, World
from allready.rules.slow._decide import decide
from allready.rules.slow._pace import percent, throttled_share
from allready.rules.slow._say import of_each, ranks_of, waited_for


@Rule(
    code="SLW002",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMP,
    since="0.1",
    layer=Layer.PACE,
    title="A CPU quota holds one rank back, and all others wait for it",
    message="the others wait for {who} during {share} of the time: the CPU quota of its control group stops it for "
    "{throttled} of the time",
    remedy="give {who} more CPU: raise or remove the quota (`cat /sys/fs/cgroup/cpu.max` and `cpu.stat`, `docker "
    "update --cpus`, resources.limits.cpu in Kubernetes), or start fewer threads and loader workers",
)
def rank_throttled(case: Analysis, live: Live, world: World) -> Iterator[Hit]:
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
    slow = case.of(decide).because("throttled")
    if not slow:
        return
    yield waited_for(
        live,
        world,
        slow,
        confidence=Confidence.CERTAIN,
        throttled=percent(max(throttled_share(live, r) for r in ranks_of(slow))),
        own=of_each(slow, "cpu.stat", lambda r: f"held back {throttled_share(live, r):.0%} of the time"),
    )
