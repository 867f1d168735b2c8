from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.model import PROCESSES, Confidence, FaultClass, Hit, Live, RemedyStep, Severity
from allready.rules.slow._blame import blame, rank_hit, ranks_of
from allready.rules.slow._pace import paused_share, percents


@Rule(
    code="SLW003",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMP,
    layer=Layer.PACE,
    title="One rank is stopped and continued repeatedly, and all others wait for it",
    message="{who} {who:is/are} stopped {paused} of the time (SIGSTOP and SIGCONT); the others wait for {who:it/them} "
    "{share} of the time",
    remedy=RemedyStep(
        explanation="find what stops it (a batch system that suspends, a debugger, a checkpointing or power tool)",
        each=PROCESSES,
        where="{on}",
        command="timeout 10 strace -p {pid} -e trace=none -e signal=all; grep State /proc/{pid}/status",
    ),
)
def rank_paused(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    When each rank entered each operation, and whether its process was found stopped (state T) for parts of the last
    seconds.
    ## Why it matters
    Collectives run at the pace of the slowest rank. Stops of a fraction of a second show in no log, and in no profile
    of the rank itself.
    ## Check by hand
    `grep State /proc/PID/status`, repeated.
    ## When it is harmless
    When it is stopped on purpose, for example with a debugger.
    """
    slow = case.of(blame).because("paused")
    if slow:
        paused = {r: paused_share(live, r) for r in ranks_of(slow)}
        yield rank_hit(
            case,
            slow,
            Confidence.CERTAIN,
            "/proc",
            form="stopped {share} of the time",
            shares=paused,
            paused=percents(paused.values()),
        )
