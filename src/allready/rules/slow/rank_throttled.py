from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.model import HOSTS, PROCESSES, Confidence, FaultClass, Hit, Live, RemedyStep, Severity
from allready.rules.slow._blame import blame, rank_hit, ranks_of
from allready.rules.slow._pace import percents, throttled_share


@Rule(
    code="SLW002",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMP,
    layer=Layer.PACE,
    title="A CPU quota throttles one rank, and all others wait for it",
    message="{who} {who:is/are} throttled {throttled} of the time by the CPU quota of {who:its cgroup/their cgroups}; "
    "the others wait for {who:it/them} {share} "
    "of the time",
    remedy=(
        RemedyStep(
            explanation="find the quota",
            each=PROCESSES,
            where="{on}",
            command="cat /proc/{pid}/cgroup; cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu.stat",
        ),
        RemedyStep(
            explanation="raise or remove it (`docker update --cpus`, resources.limits.cpu in Kubernetes), or start "
            "fewer threads and loader workers",
            each=HOSTS,
            where="{on}",
        ),
    ),
)
def rank_throttled(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    When each rank entered each operation, on synchronized clocks, and how much of the time the kernel throttled the
    rank's cgroup (nr_throttled, throttled_time).
    ## Why it matters
    Collectives run at the pace of the slowest rank. A quota stops all threads of the rank for the rest of each period
    of 100 ms, however idle the machine is.
    ## Check by hand
    `cat /sys/fs/cgroup/cpu.stat` of the rank's cgroup, twice: `nr_throttled` grows.
    ## When it is harmless
    When the job should run within that quota and its speed is accepted.
    """
    slow = case.of(blame).because("throttled")
    if slow:
        share = {r: throttled_share(live, r) for r in ranks_of(slow)}
        yield rank_hit(
            case,
            slow,
            Confidence.CERTAIN,
            "cpu.stat",
            form="throttled {share} of the time",
            shares=share,
            throttled=percents(share.values()),
        )
