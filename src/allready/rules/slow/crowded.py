from collections.abc import Iterator
from statistics import median

from msgspec.structs import replace

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.model import HOSTS, Confidence, Culprits, FaultClass, Hit, Live, RemedyStep, Severity
from allready.rules.slow._blame import blame, rank_hit
from allready.rules.slow._pace import percent, queued_share


@Rule(
    code="SLW014",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_NOCULPRIT,
    layer=Layer.PACE,
    title="All ranks wait for a free CPU, and some of them longer",
    message="ranks wait for a free CPU {queued} of the time at the median; that the others wait for {who} {share} of "
    "the time may be because of that",
    remedy=RemedyStep(
        explanation="run fewer processes and threads on these machines, or give the job CPUs of its own; what else "
        "runs there:",
        each=HOSTS,
        where="{on}",
        elsewhere="every node",
        command="ps -eLo psr,pcpu,pid,comm --sort=-pcpu | head; cat /proc/pressure/cpu",
    ),
)
def crowded(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Whether the main threads of most ranks are ready to run for a quarter of the time or more while no CPU is free, and
    a rank that the others wait for waits for a CPU itself for as long as would explain half of that.
    ## Why it matters
    On a machine that has too much to do, which rank is late says nothing about that rank.
    ## Check by hand
    `cat /proc/PID/task/PID/schedstat` twice: the second number grows by up to 1e9 (ns) a second.
    ## When it is harmless
    When the job may be slower than it could be.
    """
    late = case.of(blame).crowd
    if late:
        shares = [share for rank in live.ranks() if (share := queued_share(live, rank)) is not None]
        hit = rank_hit(case, late, Confidence.LIKELY, queued=percent(median(shares)))
        yield replace(hit, culprits=Culprits())
