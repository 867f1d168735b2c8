"""How late members enter the operations of their group, and after how many calls a loop repeats itself."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import msgspec
import numpy as np
from numpy.typing import NDArray

from allready.judging.sequence import MIN_PERIODS, Codes

REPEATS = 0.8
"""Share of calls that must be the same a period later."""
MAX_PERIOD = 700
MIN_WAITS, MANY_WAITS = 8, 40
DRIFTS = 1.6
"""Between two nodes of a job with a slow rank the ratio was 1.5 at most; where no rank waits, it grows with the number
of operations."""
MIN_SPREAD_S = 1e-6
STEADY = 0.01
"""A late one that varies by less than this share of the wait says nothing of who waits for whom."""
Times = NDArray[np.float64]


class EntryLateness(msgspec.Struct, frozen=True):
    """Of every member, over the same operations.

    `median_late_s`: behind the first one.  `last_share`: share of operations that it entered last, by more than the
    noise; two that are late together (one slow node) are both last.  `waits_s`: each time for how long most others
    waited for it; operations that overlap in time count once.
    """

    median_late_s: Mapping[int, float]
    last_share: Mapping[int, float]
    waits_s: Mapping[int, Sequence[float]]


def lateness(entered_s: Mapping[int, Sequence[float]], noise_s: float) -> EntryLateness:
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
    return EntryLateness(
        median_late_s={r: round(median(column), 6) for r, column in zip(ranks, late, strict=True)},
        last_share={r: round(n / num, 4) for r, n in zip(ranks, last, strict=True)},
        waits_s=dict(zip(ranks, waits, strict=True)),
    )


def is_awaited(late_s: Times, others_s: Iterable[Times], long_s: float, period: int) -> bool:
    """Whether the others go on when a late member has come, and not at a pace of their own.

    Where operations run beside the computation, a member may stay behind by the same time in each of them, and none
    waits.  Who waits goes on a time after the late one has entered that varies less than the time since it entered
    itself, for in that is what the late one's work varies by.

    Args:
        late_s: when it entered the operations, on the others' clock.
        others_s: when others entered the same ones.
        long_s: shorter waits tell nothing.
        period: calls of an iteration; only the same calls of iterations are compared.
    """
    ratios = []
    for other_s in others_s:
        places = np.flatnonzero(late_s - other_s > long_s)
        next_ones = np.searchsorted(other_s, late_s[places])
        places, next_ones = places[next_ones < len(other_s)], next_ones[next_ones < len(other_s)]
        if len(places) < MIN_WAITS:
            continue
        since_late_s = _spread(other_s[next_ones] - late_s[places], places % period)
        since_own_s = _spread(other_s[next_ones] - other_s[places], places % period)
        # Of a late one that always works for as long both times vary alike, by what all wait for or by the clock only:
        # then it is a matter of chance which varies less.
        waited_s = late_s[places] - other_s[places]
        varies_s = min(since_late_s, _spread(waited_s, places % period))
        is_told = varies_s > STEADY * float(np.median(waited_s))
        ratio = varies_s / max(since_own_s, MIN_SPREAD_S) if is_told else 0.0
        # Clocks of two nodes drift in the one time and not in the other; that shows over many operations.
        ratios.append(ratio / (DRIFTS if len(places) >= MANY_WAITS else 1.0))
    return not ratios or median(ratios) <= 1.0


def _spread(values: Times, kinds: NDArray[np.int64]) -> float:
    """How far values are from the median of their kind, at the median."""
    off = np.empty_like(values)
    for kind in np.unique(kinds):
        of_kind = kinds == kind
        off[of_kind] = np.abs(values[of_kind] - np.median(values[of_kind]))
    return float(np.median(off))


def period_of(codes: Codes) -> int | None:
    """The shortest distance after which calls repeat: those of one iteration; None where they do not."""
    for distance in range(1, min(MAX_PERIOD, len(codes) // MIN_PERIODS) + 1):
        if np.count_nonzero(codes[distance:] == codes[:-distance]) >= REPEATS * (len(codes) - distance):
            return distance
    return None
