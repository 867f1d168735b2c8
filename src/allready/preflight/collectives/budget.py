"""How much of the sweep fits into its time, learned from the sizes before.  Pure: the same numbers on every rank."""

SHARE = 0.25
"""One size may use so much of the time that is left: the larger ones tell more of the bandwidth."""
ENOUGH = 0.05
"""An operation that takes so much of the whole time is measured by itself, without repetitions."""


class SweepBudget:
    """The time of one sweep.  Everything that it is given must be agreed between the ranks."""

    def __init__(self, *, total_s: float, size_s: float) -> None:
        """`total_s`: for all sizes; `size_s`: for the repetitions of one."""
        self._total_s, self._size_s = total_s, size_s
        self.elapsed_s = 0.0
        self._last: tuple[int, float] | None = None  # size in bytes, seconds of one operation

    def learn(self, size_bytes: int, took_s: float, elapsed_s: float) -> None:
        """One operation of this size took so long; so much of the time is over."""
        self._last, self.elapsed_s = (size_bytes, took_s), elapsed_s

    def predicted_s(self, size_bytes: int) -> float:
        """How long one operation of this size will take; 0 when nothing is known."""
        if self._last is None:
            return 0.0
        known_bytes, took_s = self._last
        return took_s * size_bytes / known_bytes

    def has_room(self, size_bytes: int) -> bool:
        """Whether an operation of this size will end in time."""
        return self.elapsed_s + self.predicted_s(size_bytes) <= self._total_s

    def is_slow(self, took_s: float) -> bool:
        """Whether one operation that takes so long is measurement enough."""
        return took_s >= ENOUGH * self._total_s

    def num_operations(self, took_s: float) -> int:
        """How many more of such operations fit."""
        left_s = max(0.0, self._total_s - self.elapsed_s)
        return max(0, int(min(self._size_s, SHARE * left_s) / took_s))
