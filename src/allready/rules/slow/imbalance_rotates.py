"""SLW010."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import Confidence, Culprits, Evidence, FaultClass, Hit, Live, RunEvidence, Severity
from allready.rules.slow._decide import decide
from allready.rules.slow._pace import is_standing, percent

TOGETHER = 0.35
"""Share of the time that ranks wait for one another, whoever it is."""


@Rule(
    code="SLW010",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_NOCULPRIT,
    since="0.1",
    layer=Layer.PACE,
    title="Ranks wait for one another in turn, and nobody is slower than the others",
    message="ranks wait for one another during {share} of the time, each for each other in turn (group {group}): the "
    "work is unevenly divided from step to step, and no rank is at fault",
    remedy="divide the work more evenly within a step (bucket sequences by length, pack them), schedule garbage "
    "collection (`gc.freeze()`, `gc.collect()` at the same step on all ranks); no node needs to be replaced",
)
def imbalance_rotates(case: Analysis, live: Live, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Whether ranks are late by turns: together for a good part of the time, and none of them more than its share.
    ## Why it matters
    It looks like a slow rank at every single step; taking any of them out of the job would help nothing.
    ## Check by hand
    Which rank enters last in each of the last hundred operations.
    ## When it is harmless
    With data of different lengths it is to be expected.
    """
    if live.is_starting or is_standing(live):
        return
    found = case.of(decide)
    if found.ranks or found.heavier or found.path is not None or found.lossy is not None:
        return
    for lag in run.lags:
        shares = sorted(lag.waited_share.values())
        if (
            len(shares) < 2
            or sum(shares) < TOGETHER
            or max(shares) > 2.5 * max(shares[0], shares[len(shares) // 2 - 1])
        ):
            continue
        yield Hit(
            culprits=Culprits(),
            values={"share": percent(min(1.0, sum(shares))), "group": lag.group},
            confidence=Confidence.LIKELY,
            evidence=tuple(
                Evidence(source=f"{lag.source}, group {lag.group}", text=f"rank {r}: waited for {s:.0%} of the time")
                for r, s in sorted(lag.waited_share.items(), key=lambda item: -item[1])[:8]
            ),
        )
        return
