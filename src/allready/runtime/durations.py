"""Durations as callers give them: a number of seconds, or a `timedelta` as in torch."""

import math
from datetime import timedelta
from typing import TypeAlias

from allready.errors import UsageError

Duration: TypeAlias = timedelta | float
LONGEST = timedelta(days=36500)
"""More overflows in one of those that wait: the kernel, Python's locks, torch."""


def duration(given: Duration, name: str = "timeout", *, least: timedelta = timedelta(0)) -> timedelta:
    """As a `timedelta`.

    Raises:
        UsageError: it is neither, not finite, below 0 or `least`, or above a hundred years.
    """
    if not isinstance(given, timedelta):
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if not is_number or (isinstance(given, float) and not math.isfinite(given)):  # an int may be too large for it
            raise UsageError("{name}: seconds or a timedelta, not {given!r}", name=name, given=given)
        given = timedelta(seconds=min(max(-1.0, given), 2 * LONGEST.total_seconds()))
    if given < timedelta(0):
        raise UsageError("{name}: not below 0", name=name)
    if given < least:
        raise UsageError("{name}: at least {least_s:g} s", name=name, least_s=least.total_seconds())
    if given > LONGEST:
        raise UsageError("{name}: at most {days} days", name=name, days=LONGEST.days)
    return given
