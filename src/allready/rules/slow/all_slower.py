from collections.abc import Iterable, Iterator
from itertools import pairwise
from statistics import median

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.model import Confidence, Culprits, FaultClass, Hit, Live, NodeStatus, RemedyStep, Severity
from allready.rules.slow._blame import blame
from allready.rules.slow._pace import has_stopped

FACTOR = 1.6
MIN_S = 3.0
MIN_OPERATIONS = 10
MIN_SPAN_S = 0.2


@Rule(
    code="SLW011",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_NOCULPRIT,
    layer=Layer.PACE,
    title="All ranks slowed down together; no rank stands out",
    message="the job runs {now} operations per second, {before} some seconds ago: all ranks and links slowed down "
    "alike, or the work grew; no rank and no link is at fault",
    remedy=RemedyStep(
        explanation="check what all ranks share: the program's phase, the file system, a switch, the power limit, "
        "other jobs",
        where="every node",
        command="cat /proc/pressure/io; nvidia-smi -q -d PERFORMANCE",
    ),
)
def all_slower(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    The number of operations per second over the last seconds against the half minute before, on all ranks, where
    neither a rank nor a link is slower than the others.
    ## Why it matters
    A shared resource is slow; replacing a node would not help.
    ## Check by hand
    The step time in the job's own log.
    ## When it is harmless
    When the program does something else now, such as longer sequences or evaluation.
    """
    if live.is_starting or has_stopped(live) or case.of(blame).any_at_fault:
        return
    speeds = [s for n in live.statuses for s in _speeds(live, n)]
    factors = [before / max(now, 1e-9) for before, now in speeds]
    if len(speeds) >= max(2, len(live.ranks())) and min(factors) >= FACTOR:
        yield Hit(
            culprits=Culprits(),
            values={"now": f"{median(s for _, s in speeds):.3g}", "before": f"{median(s for s, _ in speeds):.3g}"},
            confidence=Confidence.POSSIBLE,
            evidence=(
                stated(
                    "flight recorder",
                    "{num} ranks, slower by {least} to {most}",
                    num=len(speeds),
                    least=f"{min(factors):.1f}",
                    most=f"{max(factors):.1f}",
                ),
            ),
        )


def _speeds(live: Live, node: int) -> Iterator[tuple[float, float]]:
    """Operations per second of each rank of a node: in the first third of its history, and in the last."""
    newest = live.statuses[node]
    statuses = [s for s in live.history.get(node, ()) if s.attempt == newest.attempt]
    if not statuses or statuses[-1].time_s - statuses[0].time_s < 3 * MIN_S:
        return
    third = (statuses[-1].time_s - statuses[0].time_s) / 3
    first = [s for s in statuses if s.time_s <= statuses[0].time_s + third]
    last = [s for s in statuses if s.time_s >= statuses[-1].time_s - third]
    for rank in newest.ranks:
        before, now = _speed(first, rank.rank), _speed(last, rank.rank)
        if before is not None and before * third >= MIN_OPERATIONS and now:
            yield before, now


def _speed(statuses: Iterable[NodeStatus], rank: int) -> float | None:
    counts = [(s.time_s, r.num_operations) for s in statuses for r in s.ranks if r.rank == rank]
    if len(counts) < 2 or counts[-1][0] - counts[0][0] < MIN_S / 2:
        return None
    # The median of the spans: in some of them a rank may have saved while the others waited.
    spans = [(n - m) / (t - s) for (s, m), (t, n) in pairwise(counts) if t - s >= MIN_SPAN_S]
    return median(spans) if spans else None
