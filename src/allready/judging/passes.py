"""Rates that are measured several times: whether once more is worth it, and what counts of them.

What a fault takes away is there every time; noise is not.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from statistics import mean
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)

ALIKE, MANY = 0.03, 8
"""So many rates that differ by no more of the greatest are alike after one pass; a few may be so by accident."""
KNOWN = 0.015
"""Rates are known when the standard error of one, as their passes differ, is no more of the middle rate."""
MAX_PASSES = 5


def kept(rates: Sequence[float]) -> float:
    """The mean of the better half: other work makes a rate smaller, and hardly anything makes it greater."""
    return mean(sorted(rates)[len(rates) // 2 :])


def is_known(passes: Sequence[Mapping[Key, float]]) -> bool:
    """Whether the rates of what was measured in all passes need no further one."""
    if not passes:
        return False
    if len(passes) >= MAX_PASSES:
        return True
    keys = [key for key in passes[0] if all(each.get(key) for each in passes)]
    rates = {key: [each[key] for each in passes] for key in keys}
    if len(rates) < 2:
        return True
    middles = [kept(of) for of in rates.values()]
    if len(passes) == 1:
        return len(middles) >= MANY and min(middles) >= (1 - ALIKE) * max(middles)
    # Of each relative to its own mean: what differs for good is no noise.
    squares = [sum((rate / mean(of) - 1) ** 2 for rate in of) for of in rates.values()]
    deviation = math.sqrt(sum(squares) / (len(rates) * (len(passes) - 1)))
    return deviation / math.sqrt(len(passes)) <= KNOWN


def together(passes: Sequence[Mapping[Key, float]]) -> dict[Key, float]:
    """What counts of each; of one that some pass could not measure, of the others."""
    keys = dict.fromkeys(key for each in passes for key in each)
    return {key: kept([each[key] for each in passes if key in each]) for key in keys}
