from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said, stated
from allready.model import Confidence, Culprits, FaultClass, Hit, Live, RemedyStep, RunEvidence, Severity
from allready.rules.slow._blame import blame
from allready.rules.slow._pace import has_stopped, percent

TOGETHER = 0.35
"""Share of the time that ranks wait for one another, whichever it is."""


@Rule(
    code="SLW010",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_NOCULPRIT,
    layer=Layer.PACE,
    title="Load imbalance rotates between ranks; no rank is consistently slower",
    message="ranks of group {group} wait for one another {share} of the time, each for a different one from step to "
    "step: the work per step is unevenly divided, and no rank is at fault",
    remedy=RemedyStep(
        explanation="balance the work within a step (bucket sequences by length, pack them), schedule garbage "
        "collection (`gc.freeze()`, `gc.collect()` at the same step on all ranks); no node needs to be replaced"
    ),
)
def imbalance_rotates(case: Analysis, live: Live, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Whether different ranks are late in different steps: together for a good part of the time, and none more than its
    share.
    ## Why it matters
    It looks like a slow rank at every single step; removing any of them from the job would not help.
    ## Check by hand
    Which rank enters last in each of the last hundred operations.
    ## When it is harmless
    It is expected with data of different lengths.
    """
    found = case.of(blame)
    if live.is_starting or has_stopped(live) or found.any_at_fault or found.heavier:
        return
    for lag in run.lags:
        shares = sorted(lag.waited_share.values())
        if len(shares) < 2 or sum(shares) < TOGETHER:
            continue
        if shares[-1] <= 2.5 * max(shares[0], shares[len(shares) // 2 - 1]):
            yield Hit(
                culprits=Culprits(),
                values={"share": percent(min(1.0, sum(shares))), "group": lag.group},
                confidence=Confidence.LIKELY,
                evidence=tuple(
                    stated(
                        said("{source}, group {group}", source=lag.source, group=lag.group),
                        "rank {rank}: waited for {share} of the time",
                        rank=r,
                        share=f"{s:.0%}",
                    )
                    for r, s in sorted(lag.waited_share.items(), key=lambda item: -item[1])[:8]
                ),
            )
            return
