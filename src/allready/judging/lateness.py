"""How late members enter the operations of their group, and after how many calls a loop repeats itself."""

from collections.abc import Mapping, Sequence
from statistics import median

import msgspec
import numpy as np

from allready.judging.sequence import Codes

REPEATS = 0.8
"""Share of calls that must be the same a period later."""
MAX_PERIOD = 700
MIN_PERIODS = 3


class Lateness(msgspec.Struct, frozen=True):
    """Of every member, over the same operations.

    `median_late_s`: behind the first one.  `last_share`: share of operations that it entered last, by more than the
    noise; two that are late together (one slow node) are both last.  `waits_s`: each time for how long most others
    waited for it; operations that overlap in time count once.
    """

    median_late_s: Mapping[int, float]
    last_share: Mapping[int, float]
    waits_s: Mapping[int, Sequence[float]]


def lateness(entered_s: Mapping[int, Sequence[float]], noise_s: float) -> Lateness:
    """Compare the times at which members entered the same operations.

    Args:
        entered_s: member -> times on one clock, one for each operation.
        noise_s: what the clocks leave open.
    """
    ranks = list(entered_s)
    late: list[list[float]] = [[] for _ in ranks]
    last = [0] * len(ranks)
    waits: list[list[float]] = [[] for _ in ranks]
    until = [float("-inf")] * len(ranks)
    middle = (len(ranks) - 1) // 2
    num = 0
    for times in zip(*entered_s.values(), strict=True):
        num += 1
        ordered = sorted(times)
        first, usual, final = ordered[0], ordered[middle], ordered[-1]
        for i, time in enumerate(times):
            late[i].append(time - first)
            if time <= usual + noise_s:
                continue
            if time >= final - noise_s:
                last[i] += 1
            if time > until[i]:
                waits[i].append(time - max(usual, until[i]))
                until[i] = time
    return Lateness(
        median_late_s={r: round(median(column), 6) for r, column in zip(ranks, late, strict=True)},
        last_share={r: round(n / num, 4) for r, n in zip(ranks, last, strict=True)},
        waits_s=dict(zip(ranks, waits, strict=True)),
    )


def period_of(codes: Codes) -> int | None:
    """The shortest distance after which calls repeat: those of one iteration; None where they do not."""
    for distance in range(1, min(MAX_PERIOD, len(codes) // MIN_PERIODS) + 1):
        if np.count_nonzero(codes[distance:] == codes[:-distance]) >= REPEATS * (len(codes) - distance):
            return distance
    return None
