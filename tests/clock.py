"""Time as tests measure it: in seconds of a quiet machine, whatever else this one has to do.

A yardstick, some milliseconds of plain computing, is timed beside what is measured.  A machine that is slow or shared
with others needs more time for both, so a limit in these seconds says something about the program and not about the
machine.
"""

import gc
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_MAX_TRIES = 4
_YARDSTICK_S = 0.005
"""What the yardstick takes on an idle core of 2024."""
_SAMPLE_EVERY_S = 0.5
_MAX_STEP_S = 0.25


def _yardstick() -> int:
    value = 1
    for number in range(60_000):
        value = (value * 31 + number) & 0xFFFFFFFF
    return value


def slowness(clock: Callable[[], float] = time.monotonic) -> float:
    """How many times as long as on a quiet machine computing takes now, at least 1."""
    begin = clock()
    _yardstick()
    return max(1.0, (clock() - begin) / _YARDSTICK_S)


def timed(work: Callable[[], T], *, enough_s: float = 0.0) -> tuple[T, float]:
    """What `work` gives, and the least CPU time of this thread that it took in a few tries.

    A try below `enough_s` is the last.

    The time of one try can be several times that of another: neighbours on the same core take the cache and the clock,
    and a search for garbage goes through every object of the whole test run.  So the search is off meanwhile.
    """
    best_s = float("inf")
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(_MAX_TRIES):
            begin = time.thread_time()
            given = work()
            took_s = time.thread_time() - begin
            if took_s >= enough_s:  # the yardstick costs more than most of what is measured
                took_s /= slowness(time.thread_time)
            best_s = min(best_s, took_s)
            if best_s < enough_s:
                break
    finally:
        if was_enabled:
            gc.enable()
    return given, best_s


def cpu_s(work: Callable[[], object], *, enough_s: float = 0.0) -> float:
    """The time alone."""
    return timed(work, enough_s=enough_s)[1]


class Stopwatch:
    """Seconds that passed since it was made, as they would have on a quiet machine."""

    def __init__(self) -> None:
        self._slowest = slowness()
        self._began = time.monotonic()

    @property
    def s(self) -> float:
        """Until now; for upper limits."""
        passed_s = self.wall_s
        self._slowest = max(self._slowest, slowness())
        return passed_s / self._slowest

    @property
    def wall_s(self) -> float:
        """By the clock on the wall; for lower limits."""
        return time.monotonic() - self._began


class Deadline:
    """Time to wait for something; it lasts longer while the machine is slow or makes no progress."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = self._left_s = limit_s
        self._slow = slowness()
        self._before = self._sampled = time.monotonic()

    def passed(self) -> bool:
        """To be asked again and again; true when the time is over."""
        now = time.monotonic()
        if now - self._sampled > _SAMPLE_EVERY_S:
            self._slow = slowness()
            now = self._sampled = time.monotonic()
        self._left_s -= min(now - self._before, _MAX_STEP_S) / self._slow
        self._before = now
        return self._left_s <= 0


def until(condition: Callable[[], T], limit_s: float = 20.0, *, what: Callable[[], object] = lambda: "") -> T:
    """The first true value of `condition`.

    Raises:
        AssertionError: there was none in time; with what `what` shows then.
    """
    deadline = Deadline(limit_s)
    while not (value := condition()):
        assert not deadline.passed(), f"not within {limit_s:g} s: {what()}"
        time.sleep(0.02)
    return value
