"""SLW013."""

from collections.abc import Iterator
from statistics import median

from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import Confidence, FaultClass, Hit, Live, Severity, World
from allready.rules.slow._decide import decide
from allready.rules.slow._pace import percent, queued_share
from allready.rules.slow._say import of_each, ranks_of, waited_for


@Rule(
    code="SLW013",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMP,
    since="0.1",
    layer=Layer.PACE,
    title="One rank waits for a free CPU, and all others wait for it",
    message="the others wait for {who} during {share} of the time, by {late} ms at the median: its main thread could "
    "run and gets no CPU {queued} of the time (the others: {rest})",
    remedy="see what else computes on the CPUs of {who}: `taskset -pc PID` and `top` (key 1, then P); move it away, or "
    "bind the rank to CPUs of its own; too many threads or loader workers of its own, or two ranks bound to the same "
    "CPUs, look the same",
)
def runqueue_wait(case: Analysis, live: Live, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    When each rank entered each operation, and for how much of the time its main thread was ready to run while no CPU
    was free (the second number of /proc/PID/task/PID/schedstat), against the ranks that are not late.
    ## Why it matters
    Collectives go at the pace of the slowest rank; a neighbour on the CPUs of one rank slows the whole job.  A rank
    that is bound to its CPUs cannot move away, however idle the rest of the machine is.
    ## Check by hand
    `cat /proc/PID/task/PID/schedstat` twice: the second number grows by up to 1e9 (ns) a second; `taskset -pc PID`;
    `ps -eLo psr,pcpu,pid,comm --sort=-pcpu | head`.
    ## When it is harmless
    When the neighbour is wanted there, for example a monitoring tool, and the loss is accepted.
    """
    slow = case.of(decide).because("queued")
    if not slow:
        return
    late = set(ranks_of(slow))
    rest = [share for r in live.ranks() if r not in late and (share := queued_share(live, r)) is not None]
    yield waited_for(
        live,
        world,
        slow,
        confidence=Confidence.CERTAIN,
        queued=percent(max(queued_share(live, r) or 0.0 for r in late)),
        rest=percent(median(rest)),
        own=of_each(slow, "schedstat", lambda r: f"waited for a CPU {queued_share(live, r) or 0.0:.0%} of the time"),
    )
