"""SLW005."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import Confidence, Evidence, FaultClass, Hit, Live, Severity, World
from allready.rules.slow._decide import decide
from allready.rules.slow._pace import percent
from allready.rules.slow._say import ranks_of, waited_for


@Rule(
    code="SLW005",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMP,
    since="0.1",
    layer=Layer.PACE,
    title="One rank shares its CPUs with others, and all ranks wait for it",
    message="the others wait for {who} during {share} of the time, by {late} ms at the median; on its node processes "
    "wait for a free CPU {pressure} of the time, on the others hardly ever",
    remedy="see who else computes on the node of {who}: `top`, `cat /proc/pressure/cpu`, `taskset -pc PID`; move "
    "them, or bind the rank to CPUs of its own",
)
def cpu_contention(case: Analysis, live: Live, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    When each rank entered each operation, and the share of time in which processes of each node wait for a CPU
    (PSI).
    ## Why it matters
    Collectives go at the pace of the slowest rank; a neighbour on one node slows the whole job.
    ## Check by hand
    `cat /proc/pressure/cpu` on the node and on another one, `top`.
    ## When it is harmless
    When the neighbour is wanted there, for example a monitoring tool, and the loss is accepted.
    """
    slow = case.of(decide).because("crowded")
    if not slow:
        return
    pressure = _pressure(live, ranks_of(slow)[0])
    yield waited_for(
        live,
        world,
        slow,
        confidence=Confidence.LIKELY,
        pressure=percent(pressure),
        own=(Evidence(source="/proc/pressure/cpu", text=f"{pressure:.0%} of the time somebody waits"),),
    )


def _pressure(live: Live, rank: int) -> float:
    return live.statuses[live.node_of_rank()[rank]].cpu_pressure_share or 0.0
