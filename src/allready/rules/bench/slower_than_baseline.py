import math
from collections.abc import Iterator
from statistics import median

from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.model import BenchPoint, Collectives, Confidence, FaultClass, Hit, RemedyStep, Severity
from allready.units import size

SLOWER, MUCH_SLOWER = 0.9, 0.5
MAX_ROWS = 8


@Rule(
    code="BEN002",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.PACE,
    title="Slower than the baseline",
    message="{operation}: busbw is {percent} % of the baseline[[ {baseline}]] (median of {count} sizes[[; least at "
    "{size}: {busbw} instead of {before} GB/s]])",
    remedy=RemedyStep(explanation="find the slow node, link or rank", command="allready bench pairs"),
)
def slower_than_baseline(collectives: Collectives) -> Iterator[Hit]:
    """
    ## What it checks
    Busbw of every size beside the same operation, type and size of the run that `--compare` names.  An operation is
    reported when the median of its sizes is below 90 % of the baseline, as an error below 50 %.
    It must differ by more than two standard errors, by how the iterations of both runs vary.
    ## Why it matters
    A link, a NIC or a setting got worse since; a comparison with one's own machine needs no published value.
    ## Check by hand
    Run both again on the same nodes, several times: a shared network differs from hour to hour.
    ## When it is harmless
    When the nodes, the number of ranks or the load differ from those of the baseline.
    """
    run = collectives.first
    if run is None:
        return
    before = {(p.operation, p.dtype, p.size_bytes): p for p in collectives.baseline if p.busbw_gb_per_s > 0}
    for operation in dict.fromkeys(p.operation for p in run.points):
        points = [p for p in run.points if p.operation == operation and (operation, p.dtype, p.size_bytes) in before]
        shares = {p: p.busbw_gb_per_s / before[operation, p.dtype, p.size_bytes].busbw_gb_per_s for p in points}
        if not shares or (middle := median(shares.values())) >= SLOWER:
            continue
        if middle >= 1 - _noise([(p, before[operation, p.dtype, p.size_bytes]) for p in points]):
            continue
        worst = sorted(points, key=lambda p: shares[p])
        rows = [
            stated(
                size(p.size_bytes),
                "{rate} GB/s, baseline {usual} GB/s",
                rate=f"{p.busbw_gb_per_s:.4g}",
                usual=f"{before[operation, p.dtype, p.size_bytes].busbw_gb_per_s:.4g}",
            )
            for p in worst[:MAX_ROWS]
        ]
        yield Hit(
            severity=Severity.ERROR if middle < MUCH_SLOWER else None,
            confidence=Confidence.LIKELY,
            values={
                "operation": operation,
                "percent": f"{100 * middle:.0f}",
                "baseline": collectives.baseline_source or None,
                "count": len(shares),
                "size": size(worst[0].size_bytes),
                "busbw": f"{worst[0].busbw_gb_per_s:.4g}",
                "before": f"{before[operation, worst[0].dtype, worst[0].size_bytes].busbw_gb_per_s:.4g}",
            },
            evidence=tuple(rows),
        )


def _noise(points: list[tuple[BenchPoint, BenchPoint]]) -> float:
    """Two standard errors of the median of so many ratios of means, by how the iterations of each size vary."""
    of = [
        math.hypot(*(p.spread.cv_share / math.sqrt(max(1, p.num_iterations)) for p in pair if p.spread is not None))
        for pair in points
    ]
    return 2 * 1.253 * median(of) / math.sqrt(len(of))
