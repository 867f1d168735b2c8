from collections.abc import Iterator

from msgspec.structs import replace

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.model import PROCESSES, Confidence, FaultClass, Hit, Live, RemedyStep, Severity
from allready.rules.slow._blame import blame, rank_hit, ranks_of
from allready.rules.slow._pace import percent, percents


@Rule(
    code="SLW005",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMP,
    layer=Layer.PACE,
    title="CPU contention slows one rank, and all ranks wait for it",
    message="{who} {who:shares its/share their} CPUs: processes on {who:its node/their nodes} wait for a free CPU "
    "{pressure} of the time, on the other "
    "nodes hardly ever; the others wait for {who:this rank/these ranks} {share} of the time, by {late} ms at the "
    "median",
    remedy=RemedyStep(
        explanation="find what else runs on its CPUs, move it away, or bind the rank to CPUs of its own",
        each=PROCESSES,
        where="{on}",
        command="cat /proc/pressure/cpu; taskset -pc {pid}; top -b -n 1 | head -20",
    ),
)
def cpu_contention(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    When each rank entered each operation, and the share of time in which processes of each node wait for a CPU (PSI).
    ## Why it matters
    Collectives run at the pace of the slowest rank; another process on one node slows the whole job.
    ## Check by hand
    `cat /proc/pressure/cpu` on the node and on another one, `top`.
    ## When it is harmless
    When the other process is wanted there, for example a monitoring tool, and the loss is accepted.
    """
    slow = case.of(blame).because("contention")
    if slow:
        node_of = live.node_of_rank()
        pressure = {n: live.statuses[n].cpu_pressure_share or 0.0 for n in sorted({node_of[r] for r in ranks_of(slow)})}
        hit = rank_hit(case, slow, Confidence.LIKELY, pressure=percents(pressure.values()))
        shown = (
            stated(
                "/proc/pressure/cpu",
                "{share} of the time some process waits for a CPU",
                share=percent(share),
                node_rank=node,
            )
            for node, share in pressure.items()
        )
        yield replace(hit, evidence=(*shown, *hit.evidence))
