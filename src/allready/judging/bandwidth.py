"""Who is slower than the others, by what a benchmark measured."""

from collections.abc import Mapping, Sequence
from statistics import median

from allready.judging.majority import is_minority
from allready.model import BenchSpread

SLOWER = 1.05
"""Ratio to the slowest of the others from which a rank counts as slower."""


def straggler(spreads: Mapping[int, BenchSpread]) -> int | None:
    """The rank whose operations took longer than those of the others, by more than they vary; None where none did.

    Of two ranks none can be distinguished from the other.
    """
    if len(spreads) < 3:
        return None
    slowest = max(spreads, key=lambda r: spreads[r].median_s)
    others = [s for r, s in spreads.items() if r != slowest]
    limit_s = max(SLOWER * max(s.median_s for s in others), median(s.p99_s for s in others))
    return slowest if spreads[slowest].median_s > limit_s else None


ALONE = {"work": 0.4, "h2d": 0.8, "d2h": 0.8, "d2d": 0.85}
"""Of the median of the others, below which a rank is slow; CPUs of healthy machines differ more, by what else runs."""
_MIN_RANKS = 3


HELD, NOT_HELD = 0.25, 0.05
"""Share of the time for which a CPU quota holds a rank back that makes it slow; of the others it must be less."""
QUOTA = "quota"


def slow_alone(
    speeds: Mapping[int, Mapping[str, float]], held: Mapping[int, float] | None = None
) -> dict[str, Sequence[int]]:
    """Kind of copy -> the ranks that are far slower in it than most others, without any network.

    `QUOTA`: those that a CPU quota holds back, by the kernel's own count.
    """
    found: dict[str, Sequence[int]] = {}
    slow = [rank for rank in speeds if (held or {}).get(rank, 0.0) >= HELD]
    others = [(held or {}).get(rank, 0.0) for rank in speeds if rank not in slow]
    if slow and is_minority(len(slow), len(speeds)) and median(others) < NOT_HELD:
        found[QUOTA] = slow
    for what, share in ALONE.items():
        of = {rank: each[what] for rank, each in speeds.items() if what in each}
        slow = [rank for rank, speed in of.items() if speed < share * median(of.values())]
        if len(of) >= _MIN_RANKS and slow and is_minority(len(slow), len(of)):
            found[what] = slow
    return found
