"""Counts and latencies in bounded memory.  Pure."""

from bisect import bisect_left
from itertools import accumulate

from allready.model import OperationCounts

BOUNDS_S = tuple(round(10.0 ** (-6 + k / 5), 9) for k in range(51))
"""Of the buckets: five a decade, from 1 us to 10,000 s; two neighbours differ by a factor of 1.6."""


class Latencies:
    """How long calls took, in fixed buckets."""

    __slots__ = ("counts", "longest_s", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = self.longest_s = 0.0

    def add(self, took_s: float) -> None:
        """One call."""
        self.counts[bisect_left(BOUNDS_S, took_s)] += 1
        self.total_s += took_s
        if took_s > self.longest_s:
            self.longest_s = took_s

    def quantile(self, share: float) -> float:
        """What this share of the calls did not exceed; between two bounds by proportion, never beyond the longest."""
        num = sum(self.counts)
        if not num:
            return 0.0
        wanted, before = share * num, 0
        for place, count in enumerate(self.counts):
            if count and before + count >= wanted:
                low = BOUNDS_S[place - 1] if place else 0.0
                high = min(self.longest_s, BOUNDS_S[place]) if place < len(BOUNDS_S) else self.longest_s
                return min(high, low + max(0.0, high - low) * (wanted - before) / count)
            before += count
        return self.longest_s

    def calls_within_s(self) -> tuple[tuple[float, int], ...]:
        """(bound, calls up to it), from the first bound that a call reached to the last."""
        sums = list(accumulate(self.counts))
        return tuple(
            (bound, total)
            for bound, total, count in zip(BOUNDS_S, sums, self.counts, strict=False)
            if count or 0 < total < sums[-1]
        )


class OperationTally:
    """The calls of one operation."""

    __slots__ = ("calls", "failures", "latencies", "timeouts")

    def __init__(self) -> None:
        self.calls = self.failures = self.timeouts = 0
        self.latencies = Latencies()

    def counted(self) -> OperationCounts:
        """What is known now."""
        found = self.latencies
        return OperationCounts(
            calls=self.calls,
            failures=self.failures,
            timeouts=self.timeouts,
            total_s=found.total_s,
            longest_s=found.longest_s,
            median_s=found.quantile(0.5),
            p99_s=found.quantile(0.99),
            calls_within_s=found.calls_within_s(),
        )


class Waits:
    """For how long this rank was in its last calls of one operation, by their numbers in the epoch."""

    __slots__ = ("_most", "_numbers", "_waits_us", "num_sent")

    def __init__(self, most: int) -> None:
        self._most = most
        self._numbers: list[int] = []
        self._waits_us: list[int] = []
        self.num_sent = 0

    def add(self, number: int, took_s: float) -> int:
        """One call; how many are not sent yet."""
        self._numbers.append(number)
        self._waits_us.append(int(took_s * 1e6 + 0.5))
        if len(self._numbers) >= 2 * self._most:
            dropped = len(self._numbers) - self._most
            del self._numbers[:dropped], self._waits_us[:dropped]
            self.num_sent = max(0, self.num_sent - dropped)
        return len(self._numbers) - self.num_sent

    def last(self, most: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Numbers and microseconds of the last calls."""
        return tuple(self._numbers[-most:]), tuple(self._waits_us[-most:])

    def unsent(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Those since this was asked last."""
        begin, self.num_sent = self.num_sent, len(self._numbers)
        return tuple(self._numbers[begin:]), tuple(self._waits_us[begin:])
