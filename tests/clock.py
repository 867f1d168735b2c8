"""How much CPU time work takes, measured so that a busy machine gives the same answer."""

import gc
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_MAX_TRIES = 4


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
            best_s = min(best_s, time.thread_time() - begin)
            if best_s < enough_s:
                break
    finally:
        if was_enabled:
            gc.enable()
    return given, best_s


def cpu_s(work: Callable[[], object], *, enough_s: float = 0.0) -> float:
    """The time alone."""
    return timed(work, enough_s=enough_s)[1]
