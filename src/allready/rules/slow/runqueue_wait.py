from collections.abc import Iterator
from statistics import median

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.model import PROCESSES, Confidence, FaultClass, Hit, Live, RemedyStep, Severity
from allready.rules.slow._blame import blame, rank_hit, ranks_of
from allready.rules.slow._pace import others_queued, percent, percents, queued_share


@Rule(
    code="SLW013",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMP,
    layer=Layer.PACE,
    title="One rank waits in the run queue for a CPU, and all others wait for it",
    message="{who} {who:waits/wait} in the run queue: {who:its main thread is runnable and gets/their main threads "
    "are runnable and get} no CPU {queued} of the time (the "
    "others: {rest}); the others wait for {who:it/them} {share} of the time, by {late} ms at the median",
    remedy=(
        RemedyStep(
            explanation="find what else runs on its CPUs and move it away, or bind the rank to CPUs of its own",
            each=PROCESSES,
            where="{on}",
            command="taskset -pc {pid}; ps -eLo psr,pcpu,pid,comm --sort=-pcpu | head",
        ),
        RemedyStep(
            explanation="too many threads or loader workers of its own, or two ranks bound to the same CPUs, look the "
            "same"
        ),
    ),
)
def runqueue_wait(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    When each rank entered each operation, and for how much of the time its main thread was ready to run while no CPU
    was free (the second number of /proc/PID/task/PID/schedstat), against the ranks that are not late.
    ## Why it matters
    Collectives run at the pace of the slowest rank; another process on the CPUs of one rank slows the whole job. A rank
    that is bound to its CPUs cannot move away, however idle the rest of the machine is.
    ## Check by hand
    `cat /proc/PID/task/PID/schedstat` twice: the second number grows by up to 1e9 (ns) a second; `taskset -pc PID`; `ps
    -eLo psr,pcpu,pid,comm --sort=-pcpu | head`.
    ## When it is harmless
    When the other process is wanted there, for example a monitoring tool, and the loss is accepted.
    """
    slow = case.of(blame).because("queued")
    if slow:
        queued = {r: queued_share(live, r) or 0.0 for r in ranks_of(slow)}
        yield rank_hit(
            case,
            slow,
            Confidence.CERTAIN,
            "schedstat",
            form="waited for a CPU {share} of the time",
            shares=queued,
            queued=percents(queued.values()),
            rest=percent(median(others_queued(live, queued))),
        )
