"""How long calls have taken so far, and the deadline that follows from it.  Pure: no clock, no torch."""

from dataclasses import dataclass
from datetime import timedelta

from allready.runtime.arguments import number, whole
from allready.runtime.durations import Duration, duration
from allready.runtime.messages import Ranks

HALF_LIFE = 1000
"""Calls of one size after which a long one counts half: a rare slow call is remembered, but not for ever."""
MAX_KINDS = 1024
TRAINING = "training"
"""The phase in which a rank is outside of all others."""
_DECAY: float = 0.5 ** (1 / HALF_LIFE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveTimeout:
    """A timeout learned from how long the same operation took in the same group; for `timeout=` of all safe calls.

    The deadline is `margin` times the longest such call, waiting for slow ranks included, scaled to this one's size and
    number of ranks, and between `least` and `most`.  Until `after` calls of a size near this one, or one that bounds
    it, have succeeded on this rank, it is `most`.

    Attributes:
        most: by default the timeout of the phase.
    """

    most: Duration | None = None
    least: Duration = timedelta(seconds=30)
    margin: float = 5.0
    after: int = 20

    def __post_init__(self) -> None:
        number(self.margin, "margin", least=1)
        whole(self.after, "after", least=1)
        duration(self.least, "least")
        if self.most is not None:
            duration(self.most, "most")

    @property
    def least_s(self) -> float:
        return duration(self.least).total_seconds()

    @property
    def most_s(self) -> float | None:
        """None: the timeout of the phase."""
        return None if self.most is None else duration(self.most).total_seconds()

    def limit_s(self, expected_s: float | None, most_s: float) -> float:
        """The deadline of a call that is expected to take no longer than `expected_s`; None: nothing was learned."""
        if expected_s is None:
            return most_s
        return min(most_s, max(self.least_s, self.margin * expected_s))


class _Sizes:
    """Calls of about one size: within a factor of two."""

    __slots__ = ("least_bytes", "num_calls", "num_ranks", "worst_s")

    def __init__(self, num_bytes: int) -> None:
        self.least_bytes = num_bytes
        self.num_calls = self.num_ranks = 0
        self.worst_s = 0.0


class OperationPace:
    """Of one operation in one group."""

    __slots__ = ("_sizes",)

    def __init__(self) -> None:
        self._sizes: dict[int, _Sizes] = {}

    def note(self, num_bytes: int, took_s: float, num_ranks: int) -> None:
        """A call has succeeded."""
        of = num_bytes.bit_length()
        sizes = self._sizes.get(of)
        if sizes is None:
            sizes = self._sizes[of] = _Sizes(num_bytes)
        sizes.num_calls += 1
        worst_s = sizes.worst_s * _DECAY
        sizes.worst_s = max(worst_s, took_s)
        if num_ranks > sizes.num_ranks:
            sizes.num_ranks = num_ranks
        if num_bytes < sizes.least_bytes:
            sizes.least_bytes = num_bytes

    def expected_s(self, num_bytes: int, num_ranks: int, *, after: int) -> float | None:
        """The longest that a call of this size should take; None: too few were seen.

        A longer message takes longer, and at most in proportion; so does a group of more ranks.  So every size seen
        bounds every other one, and its own bounds it best.
        """
        own = self._sizes.get(num_bytes.bit_length())
        if own is not None and own.num_calls >= after:
            return _bound(own, num_bytes, num_ranks)
        known = [sizes for sizes in self._sizes.values() if sizes.num_calls >= after and sizes.least_bytes > 0]
        return min((_bound(sizes, num_bytes, num_ranks) for sizes in known), default=None)

    def table(self) -> "Table":
        """What was seen, to be reported to other ranks."""
        return {of: (s.least_bytes, s.num_calls, s.num_ranks, s.worst_s) for of, s in self._sizes.items()}

    def merge(self, table: "Table") -> None:
        """Take over what another rank has seen: of every size the longest call counts."""
        for of, (least_bytes, num_calls, num_ranks, worst_s) in table.items():
            sizes = self._sizes.setdefault(of, _Sizes(least_bytes))
            sizes.least_bytes = min(sizes.least_bytes, least_bytes)
            sizes.num_calls = max(sizes.num_calls, num_calls)
            sizes.num_ranks = max(sizes.num_ranks, num_ranks)
            sizes.worst_s = max(sizes.worst_s, worst_s)

    def most_calls(self) -> int:
        """Of any size."""
        return max((sizes.num_calls for sizes in self._sizes.values()), default=0)

    def longest_s(self) -> float:
        """Of the calls of all sizes, old ones counting less."""
        return max((sizes.worst_s for sizes in self._sizes.values()), default=0.0)

    def largest_bytes(self, *, after: int) -> int | None:
        """Of the sizes seen often enough."""
        return max((s.least_bytes for s in self._sizes.values() if s.num_calls >= after), default=None)


Table = dict[int, tuple[int, int, int, float]]
"""Size, as a power of two -> the least bytes, calls, ranks, and the longest time."""


def _bound(sizes: _Sizes, num_bytes: int, num_ranks: int) -> float:
    longer = num_bytes / sizes.least_bytes if sizes.least_bytes else 1.0
    return sizes.worst_s * max(1.0, longer) * max(1.0, num_ranks / sizes.num_ranks)


class Paces:
    """Of all phases, operations and groups of a rank; the memory is bounded."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, Ranks, str], OperationPace] = {}

    def of(self, phase: str, group: Ranks, operation: str) -> OperationPace:
        """The one of this operation in this group and phase; kept when the group forms again."""
        key = (phase, group, operation)
        found = self._of.get(key)
        if found is None:
            if len(self._of) >= MAX_KINDS:
                del self._of[next(iter(self._of))]
            found = self._of[key] = OperationPace()
        return found

    def learned(self, phase: str, group: Ranks) -> dict[str, OperationPace]:
        """By operation."""
        return {name: pace for (at, ranks, name), pace in self._of.items() if (at, ranks) == (phase, group)}
