"""What a user may mean by a time: `2026-11-20 11:51`, `11:51`, `10m`."""

import argparse
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from allready.errors import UsageError
from allready.patterns import compiled
from allready.text.usage import usage_text

_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = r"(?a)(\d{1,9}(?:\.\d{1,6})?)\s*(s|m|min|h|d)"
_CLOCK = r"(?a)(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d{1,9})?))?"
_DATE = r"(?a)\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)?"

Since = Callable[[float | None], float]
"""From the last moment of the evidence to the moment that is meant; both as if local times were UTC."""


def since(text: str) -> Since:
    """How `text` is to be understood, once the evidence is read.

    A duration counts back from where the evidence ends, which is what one wants of old logs; a time of day is the last
    such time before the end.
    """
    asked = text.strip()
    duration = compiled(_DURATION).fullmatch(asked)
    if duration:
        seconds = float(duration[1]) * _UNITS[duration[2]]
        return lambda end_s: _known(end_s, text) - seconds
    clock = compiled(_CLOCK).fullmatch(asked)
    if clock and int(clock[1]) < 24 and int(clock[2]) < 60 and float(clock[3] or 0) < 60:
        in_day = timedelta(hours=int(clock[1]), minutes=int(clock[2]), seconds=float(clock[3] or 0))
        return lambda end_s: _last_such(_known(end_s, text), in_day)
    if compiled(_DATE).fullmatch(asked):
        try:
            moment = datetime.fromisoformat(asked).replace(tzinfo=UTC).timestamp()
        except ValueError:
            pass
        else:
            return lambda _: moment
    raise argparse.ArgumentTypeError(
        usage_text("{text!r} is not a time; write 2026-11-20 11:51, 11:51 or 10m", text=text)
    )


def _last_such(end_s: float, in_day: timedelta) -> float:
    end = datetime.fromtimestamp(end_s, UTC)
    moment = end.replace(hour=0, minute=0, second=0, microsecond=0) + in_day
    return (moment if moment <= end else moment - timedelta(days=1)).timestamp()


def _known(end_s: float | None, text: str) -> float:
    if end_s is None:
        raise UsageError(
            "--since {text}: no line of the evidence has a timestamp; give a date and a time, or leave it out",
            text=text,
        )
    return end_s
