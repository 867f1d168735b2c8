"""Durations as callers give them: a number of seconds, or a `timedelta` as in torch."""

import math
from datetime import timedelta
from typing import TypeAlias

from allready.errors import UsageError

Duration: TypeAlias = timedelta | float


def duration(given: Duration, name: str = "timeout") -> timedelta:
    """As a `timedelta`.

    Raises:
        UsageError: it is neither, not finite, or below 0.
    """
    if not isinstance(given, timedelta):
        if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
            raise UsageError("{name}: seconds or a timedelta, not {given!r}", name=name, given=given)
        given = timedelta(seconds=given)
    if given < timedelta(0):
        raise UsageError("{name}: not below 0", name=name)
    return given
