"""Who is slower than the others, by what a benchmark measured."""

from collections.abc import Mapping
from statistics import median

SLOWER = 1.05
"""Ratio to the median of the others from which a rank counts as slower."""


def straggler(medians_s: Mapping[int, float]) -> int | None:
    """The rank whose operations took longer than those of the others; None where no rank stands out, or of two."""
    if len(medians_s) < 3:
        return None
    slowest = max(medians_s, key=lambda r: medians_s[r])
    others = median(s for r, s in medians_s.items() if r != slowest)
    return slowest if medians_s[slowest] > SLOWER * others else None
