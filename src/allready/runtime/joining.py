"""Ranks outside of the present group that ask to be taken in: who waits, and when they are next.  Pure."""

from msgspec import Struct

from allready.runtime import messages as m

PATIENCE_S = 0.3
"""So long a rank that joins waits for a point at which all members are, before a step is interrupted for it."""
MAX_PATIENCE_S = 30.0


class _Joiner(Struct, frozen=True):
    at_s: float
    wish: m.Join


class Joiners:
    """Those that wait; `interval_s` is the time between the last two points that all members agreed on."""

    def __init__(self) -> None:
        self._waiting: dict[int, _Joiner] = {}
        self._passed_s: float | None = None
        self.interval_s = 0.0

    def __contains__(self, rank: object) -> bool:
        return rank in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def state(self) -> list[tuple[int, float, m.Join]]:
        """All of it, for who compares states."""
        return sorted((r, j.at_s, j.wish) for r, j in self._waiting.items())

    def add(self, rank: int, wish: m.Join, now_s: float) -> None:
        """One more."""
        self._waiting[rank] = _Joiner(now_s, wish)

    def drop(self, rank: int) -> None:
        """It is gone."""
        self._waiting.pop(rank, None)

    def first(self) -> int | None:
        """The one that waits longest."""
        return min(self._waiting, key=lambda r: self._waiting[r].at_s, default=None)

    def take(self) -> dict[int, m.Join]:
        """All, who wait no more."""
        found = {r: self._waiting[r].wish for r in sorted(self._waiting)}
        self._waiting.clear()
        return found

    def expired(self, now_s: float) -> list[int]:
        """Those whose time is over, who wait no more."""
        found = [r for r, j in self._waiting.items() if now_s >= j.at_s + j.wish.timeout_s]
        for rank in found:
            del self._waiting[rank]
        return found

    def expire_s(self) -> float | None:
        """When the next one's time is over."""
        return min((j.at_s + j.wish.timeout_s for j in self._waiting.values()), default=None)

    def passed(self, now_s: float) -> None:
        """All members have come to an agreed point."""
        if self._passed_s is not None:
            self.interval_s = now_s - self._passed_s
        self._passed_s = now_s

    def formed(self) -> None:
        """A new group: what was before says nothing of its pace."""
        self._passed_s, self.interval_s = None, 0.0

    def due_s(self) -> float | None:
        """When the members are interrupted for them, wherever they are then."""
        if not self._waiting:
            return None
        patience_s = min(MAX_PATIENCE_S, PATIENCE_S + 2 * self.interval_s)
        return min(j.at_s for j in self._waiting.values()) + patience_s
