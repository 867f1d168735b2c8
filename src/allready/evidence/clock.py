"""Times of log lines: seconds since 1970 as if the log's local time were UTC, also where a line says no year."""

import datetime as dt
import functools
from collections.abc import Callable

from allready.patterns import compiled_bytes

_DAY_S = 86_400
_LATEST_S = 2 * _DAY_S  # how far a line may lie after the reference: clocks differ, files are touched
_YEARLESS = rb"(?:^|[\s:\[])[IWEF]([01]\d)([0-3]\d) (\d\d):(\d\d):(\d\d)\.\d{3,9} "
_DATED = rb"(?:^|[\s\[:])((?:19|20)\d\d)[-/](\d\d)[-/](\d\d)[T _](\d\d):(\d\d)(?::(\d\d))?(?!\d)"

MONTHS = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), start=1
    )
}


@functools.lru_cache(maxsize=4096)
def _days(year: int, month: int, day: int) -> int | None:
    try:
        return dt.date(year, month, day).toordinal() - 719_163
    except ValueError:
        return None


def fraction(digits: str | None) -> float:
    """`785` -> 0.785."""
    return int(digits) / 10 ** len(digits) if digits else 0.0


def dated(year: int, month: int, day: int, hour: int, minute: int, second: int, part: float = 0.0) -> float | None:
    """The time of a full date, or None where it is none."""
    days = _days(year, month, day)
    if days is None or hour > 23 or minute > 59 or second > 60:
        return None
    return days * _DAY_S + hour * 3600 + minute * 60 + second + part


def latest_dated(lines: "list[bytes]", most: int = 4000) -> float | None:
    """The latest full date near the start of a line among the first and the last of `lines`."""
    latest: float | None = None
    for line in _ends_of(lines, most):
        match = compiled_bytes(_DATED).search(line, 0, 120)
        if match is not None:
            time_s = dated(*(int(part or 0) for part in match.groups()))
            if time_s is not None and (latest is None or time_s > latest):
                latest = time_s
    return latest


def latest_without_year(lines: "list[bytes]", reference_s: float, most: int = 4000) -> float | None:
    """The latest of the dates without a year that glog puts in front of its lines: then times of day in the same log
    are of these days."""
    clock = Clock(reference_s)
    found = (compiled_bytes(_YEARLESS).search(line, 0, 120) for line in _ends_of(lines, most))
    times = (clock.without_year(*(int(part) for part in match.groups())) for match in found if match is not None)
    return max((time_s for time_s in times if time_s is not None), default=None)


def _ends_of(lines: "list[bytes]", most: int) -> "list[bytes]":
    return lines if len(lines) <= most else lines[: most // 2] + lines[-most // 2 :]


class Clock:
    """Completes times that say no year or no date, from one moment that is known not to lie much before them."""

    def __init__(self, reference_s: float | Callable[[], float]) -> None:
        """`reference_s`: a function is called when the first such time comes."""
        self._reference = reference_s
        self._by_day: dict[tuple[int, int], int | None] = {}

    @functools.cached_property
    def reference_s(self) -> float:
        """The moment."""
        found = self._reference if isinstance(self._reference, float) else self._reference()
        return min(max(found, 0.0), 253_000_000_000.0)

    def without_year(
        self, month: int, day: int, hour: int, minute: int, second: int, part: float = 0.0
    ) -> float | None:
        """The last such moment that is not later than the reference (and two days)."""
        days = self._by_day.get((month, day), -1)
        if days == -1:
            days = self._find_day(month, day)
            self._by_day[month, day] = days
        if days is None or hour > 23 or minute > 59 or second > 60:
            return None
        return days * _DAY_S + hour * 3600 + minute * 60 + second + part

    def _find_day(self, month: int, day: int) -> int | None:
        now = dt.datetime.fromtimestamp(self.reference_s, dt.UTC).year
        for year in range(min(now + 1, 9998), max(now - 9, 1), -1):  # nine: a 29th of February
            days = _days(year, month, day)
            if days is not None and days * _DAY_S <= self.reference_s + _LATEST_S:
                return days
        return None

    def time_of_day(self, hour: int, minute: int, second: int, part: float = 0.0) -> float | None:
        """The last such moment that is not later than the reference (and one minute)."""
        if hour > 23 or minute > 59 or second > 60:
            return None
        midnight = self.reference_s - self.reference_s % _DAY_S
        time_s = midnight + hour * 3600 + minute * 60 + second + part
        return time_s if time_s <= self.reference_s + 60 else time_s - _DAY_S
