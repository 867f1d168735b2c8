"""SLW011."""

from collections.abc import Iterator
from itertools import pairwise
from statistics import median

from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import Confidence, Culprits, Evidence, FaultClass, Hit, Live, Severity
from allready.rules.slow._decide import decide
from allready.rules.slow._pace import is_standing

FACTOR = 1.6
MIN_S = 3.0
MIN_OPERATIONS = 10
MIN_SPAN_S = 0.2


@Rule(
    code="SLW011",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_NOCULPRIT,
    since="0.1",
    layer=Layer.PACE,
    title="All ranks became slower together, and nobody stands out",
    message="the job makes {now} operations a second, {before} some seconds ago: all ranks and links became slower "
    "alike, or the work became larger; no rank and no link is at fault",
    remedy="look for what all share: the program's phase, the file system, a switch, the power limit, other jobs",
)
def all_slower(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    The number of operations a second over the last seconds against the half minute before, on all ranks, where neither
    a rank nor a link is found to be slower than the others.
    ## Why it matters
    Something that all share is slow; looking for a bad node would be in vain.
    ## Check by hand
    The step time in the job's own log.
    ## When it is harmless
    When the program does something else now, such as longer sequences or evaluation.
    """
    if live.is_starting or is_standing(live):
        return
    found = case.of(decide)
    if found.ranks or found.path is not None or found.lossy is not None:
        return
    speeds = [s for n in live.statuses for s in _speeds(live, n)]
    if len(speeds) < max(2, len(live.ranks())):
        return
    factors = [before / max(now, 1e-9) for before, now in speeds]
    if min(factors) < FACTOR:
        return
    yield Hit(
        culprits=Culprits(),
        values={"now": f"{median(s for _, s in speeds):.3g}", "before": f"{median(s for s, _ in speeds):.3g}"},
        confidence=Confidence.POSSIBLE,
        evidence=(
            Evidence(
                source="flight recorder",
                text=f"{len(speeds)} ranks, slower by {min(factors):.1f} to {max(factors):.1f}",
            ),
        ),
    )


def _speeds(live: Live, node: int) -> Iterator[tuple[float, float]]:
    """Operations a second of each rank of a node: in the first third of what is remembered, and in the last."""
    newest = live.statuses[node]
    words = [s for s in live.history.get(node, ()) if s.attempt == newest.attempt]
    if not words or words[-1].time_s - words[0].time_s < 3 * MIN_S:
        return
    third = (words[-1].time_s - words[0].time_s) / 3
    first = [s for s in words if s.time_s <= words[0].time_s + third]
    last = [s for s in words if s.time_s >= words[-1].time_s - third]
    for rank in newest.ranks:
        counts = []
        for part in (first, last):
            told = [(s.time_s, r.num_operations) for s in part for r in s.ranks if r.rank == rank.rank]
            if len(told) < 2 or told[-1][0] - told[0][0] < MIN_S / 2:
                break
            # The middle one of the spans: in some of them somebody may have saved while the others waited.
            spans = [(n - m) / (t - s) for (s, m), (t, n) in pairwise(told) if t - s >= MIN_SPAN_S]
            if not spans:
                break
            counts.append(median(spans))
        if len(counts) == 2 and counts[0] * third >= MIN_OPERATIONS and counts[1] > 0:
            yield counts[0], counts[1]
