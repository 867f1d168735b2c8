"""Who is slower than the others, by what a benchmark measured."""

from collections.abc import Mapping
from statistics import median

from allready.model import BenchSpread

SLOWER = 1.05
"""Ratio to the slowest of the others from which a rank counts as slower."""


def straggler(spreads: Mapping[int, BenchSpread]) -> int | None:
    """The rank whose operations took longer than those of the others, by more than they vary; None where none did.

    Of two ranks none can be told from the other.
    """
    if len(spreads) < 3:
        return None
    slowest = max(spreads, key=lambda r: spreads[r].median_s)
    others = [s for r, s in spreads.items() if r != slowest]
    limit_s = max(SLOWER * max(s.median_s for s in others), median(s.p99_s for s in others))
    return slowest if spreads[slowest].median_s > limit_s else None
