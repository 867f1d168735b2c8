"""SLW003."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import Confidence, FaultClass, Hit, Live, Severity, World
from allready.rules.slow._decide import decide
from allready.rules.slow._pace import paused_share, percent
from allready.rules.slow._say import of_each, ranks_of, waited_for


@Rule(
    code="SLW003",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMP,
    since="0.1",
    layer=Layer.PACE,
    title="One rank is stopped again and again, and all others wait for it",
    message="the others wait for {who} during {share} of the time: something stops its process and lets it go on, "
    "{paused} of the time",
    remedy="find out who sends SIGSTOP and SIGCONT to {who} (a batch system that suspends, a debugger, a "
    "checkpointing or power tool): `strace -p PID -e trace=none -e signal=all`, `grep State /proc/PID/status`",
)
def rank_paused(case: Analysis, live: Live, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    When each rank entered each operation, and whether its process was found stopped (state T) for parts of the last
    seconds.
    ## Why it matters
    Collectives go at the pace of the slowest rank. Stops of a fraction of a second show in no log, and in no
    profile of the rank itself.
    ## Check by hand
    `grep State /proc/PID/status`, repeated.
    ## When it is harmless
    When somebody stops it on purpose, for example with a debugger.
    """
    slow = case.of(decide).because("paused")
    if not slow:
        return
    yield waited_for(
        live,
        world,
        slow,
        confidence=Confidence.CERTAIN,
        paused=percent(max(paused_share(live, r) for r in ranks_of(slow))),
        own=of_each(slow, "/proc", lambda r: f"stopped {paused_share(live, r):.0%} of the time"),
    )
