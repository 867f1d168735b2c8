"""Whether a rank sleeps on purpose: what ends by itself, after however long."""

from collections.abc import Iterable

from msgspec import Struct

from allready.proc.process import switches_of, wchan_of

LONG_S = 10.0
"""A loop that asks again and again sleeps for less each time: it may wait for what never comes."""
LONGEST_S = 600.0
"""What sleeps for longer is not waited for."""


class _Sleep(Struct, frozen=True):
    switches: int
    since: float


class Sleeps:
    """Of one rank.  Asked at every sample."""

    def __init__(self) -> None:
        self._sleep: _Sleep | None = None

    def sample(self, pid: int, loaders: Iterable[int], now: float) -> bool:
        """Whether its main thread has been in one call of `sleep` for long, or a loader of its is in one.

        Args:
            loaders: children that fetch its data.
            now: monotonic.
        """
        switches = switches_of(pid) if _is_asleep(pid) else None
        if switches is None:
            self._sleep = None
        elif self._sleep is None or self._sleep.switches != switches:
            self._sleep = _Sleep(switches, now)
        is_long = self._sleep is not None and LONG_S <= now - self._sleep.since < LONGEST_S
        return is_long or any(map(_is_asleep, loaders))


def _is_asleep(pid: int) -> bool:
    return "nanosleep" in (wchan_of(pid) or "")
