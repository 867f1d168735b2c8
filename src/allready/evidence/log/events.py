"""Events of a log: which signature knows a line, and equal lines put together."""

import re
from collections.abc import Iterator
from dataclasses import replace

from allready.evidence.log.line import MOST_EVENT_TEXT
from allready.model import Event
from allready.signatures import Signature, table

MOST_EVENTS = 50_000
MOST_KEPT = 16
"""Events of one process and signature that differ in numbers are kept up to as many, then counted."""

_MOST_TEMPLATES = 8192
_POINTER = re.compile(r"0x[0-9a-fA-F]+")
_NUMBER = re.compile(r"\d+")
_ZEROS = str.maketrans("123456789", "000000000")


class Finder:
    """Asks the signature tables, and remembers for shapes of lines that none of them has an anchor in it."""

    def __init__(self) -> None:
        self._anchors = table.anchors()
        self._without: set[str] = set()

    def find(self, rest: str, text: str) -> tuple[Signature, re.Match[str]] | None:
        """The first signature that knows the line: without its prefix, else as it stands there."""
        shape = _POINTER.sub("0x", text).translate(_ZEROS)
        if shape in self._without:
            return None
        if not any(anchor in text for anchor in self._anchors):
            if len(self._without) >= _MOST_TEMPLATES:
                self._without.clear()
            self._without.add(shape)
            return None
        found = next(table.of_line(rest), None)
        return found if found is not None or rest == text else next(table.of_line(text), None)


class Collector:
    """Events in order; repeated ones are counted in the first of them."""

    def __init__(self) -> None:
        self.num_dropped = 0
        self._events: list[Event] = []
        self._same: dict[tuple[object, ...], int] = {}
        self._alike: dict[tuple[object, ...], tuple[int, int]] = {}

    def add(self, event: Event) -> int | None:
        """Take it in; where it is now, None when it was only counted."""
        o = event.origin
        who = (event.signature, o.host, o.pid, o.rank, o.local_rank, o.node)
        exact = (who, tuple(event.values.items()), event.text if not event.values else "")
        at = self._same.get(exact)
        if at is not None:
            self._count(at, event)
            return None
        shape = tuple((name, _NUMBER.sub("0", value)) for name, value in event.values.items())
        number, last = self._alike.get((who, shape), (0, 0))
        if number >= MOST_KEPT or len(self._events) >= MOST_EVENTS:
            if number:
                self._count(last, event)
            else:
                self.num_dropped += event.count
            return None
        self._events.append(event)
        at = len(self._events) - 1
        self._same[exact] = at
        self._alike[who, shape] = (number + 1, at)
        return at

    def _count(self, at: int, event: Event) -> None:
        old = self._events[at]
        times = [t for t in (old.last_time_s or old.time_s, event.last_time_s or event.time_s) if t is not None]
        extra = event.extra if len(event.extra) > len(old.extra) else old.extra
        self._events[at] = replace(
            old,
            count=old.count + event.count,
            last_time_s=max(times) if times else None,
            time_s=old.time_s if old.time_s is not None else event.time_s,
            extra=extra,
        )

    def change(self, at: int, **changes: object) -> None:
        """Complete an event that was taken in."""
        self._events[at] = replace(self._events[at], **changes)  # type: ignore[arg-type]

    def __getitem__(self, at: int) -> Event:
        return self._events[at]

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def __len__(self) -> int:
        return len(self._events)


def values_of(match: re.Match[str]) -> dict[str, str]:
    """What the pattern's named groups caught."""
    return {name: value[:MOST_EVENT_TEXT] for name, value in match.groupdict().items() if value is not None}
