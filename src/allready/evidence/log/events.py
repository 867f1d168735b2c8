"""Events of a log: which signature knows a line, and equal lines put together."""

import re
from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple

from msgspec.structs import replace

from allready.evidence.log.line import MAX_EVENT_TEXT
from allready.model import Event, Role
from allready.signatures import LinePattern, Signature, table

MAX_EVENTS = 50_000
MAX_KEPT = 16
"""Events of one process and signature that differ in numbers are kept up to as many, then counted."""

_MAX_TEMPLATES = 8192
_MAX_KNOWN_CHARACTERS = 300
_ZEROS = dict.fromkeys(range(ord("0"), ord("9") + 1), "0")
_POINTER = re.compile(r"0x[0-9a-fA-F]+")
_NUMBER = re.compile(r"\d+")

_Asked = tuple[LinePattern, Signature]
Found = tuple[Signature, re.Match[str]]
Likeness = tuple[tuple[object, ...], tuple[object, ...]]


class Said(NamedTuple):
    """An event as far as the words of its line decide it, whoever wrote them."""

    signature: str
    text: str
    values: Mapping[str, str]
    role: Role
    likeness: Likeness


class Finder:
    """Asks the signature tables, and remembers for shapes of lines which of them may know such a line.

    What is remembered is shared by all logs that a process reads: the files of a thousand ranks say the same.
    """

    def __init__(self) -> None:
        _Memory.of(table.by_anchor())
        self._candidates, self._known = _Memory.shapes, _Memory.known
        self._front = self._front_shape = ""  # of the line before: those of one process begin alike

    def find(self, rest: str, text: str) -> Found | None:
        """The first signature that knows the line: without its prefix, else as it stands there."""
        front = text[: len(text) - len(rest)]
        if front != self._front:
            self._front, self._front_shape = front, front.translate(_ZEROS)
        key = (self._front_shape, rest)
        known = self._known.get(key)
        if known is None:
            asked = self._asked(text)
            found = _first(asked, rest)
            if found is not None or rest == text:
                asked = ()
            elif _first(asked, text) is None:  # whoever takes all digits alike does not know its like either
                asked = tuple([one for one in asked if not one[0].is_blind])
            known = found, asked
            if len(rest) <= _MAX_KNOWN_CHARACTERS and text.endswith(rest):
                if len(self._known) >= _MAX_TEMPLATES:
                    self._known.clear()
                self._known[key] = known
        return known[0] or _first(known[1], text)

    def _asked(self, text: str) -> tuple[_Asked, ...]:
        """Who may know such a line.  Anchors have no digits, so numbers and pointers decide nothing."""
        shape = _NUMBER.sub("0", _POINTER.sub("0x", text))
        asked = self._candidates.get(shape)
        if asked is None:
            asked = tuple((line, signature) for anchor, line, signature in table.by_anchor() if anchor in text)
            if len(self._candidates) >= _MAX_TEMPLATES:
                self._candidates.clear()
            self._candidates[shape] = asked
        return asked


def _first(asked: tuple[_Asked, ...], text: str) -> Found | None:
    for line, signature in asked:
        if line.anchor in text and (match := line.pattern.search(text)) is not None:
            return signature, match
    return None


class _Memory:
    """What this process remembers, and of which tables.

    `known`: what was found in lines' own words, by what stands in front of them (all digits as zeros) and these words;
    where nothing was, who has to be asked whether they know the line as it stands there.
    """

    tables: tuple[tuple[str, LinePattern, Signature], ...] = ()
    shapes: ClassVar[dict[str, tuple[_Asked, ...]]] = {}
    known: ClassVar[dict[tuple[str, str], tuple[Found | None, tuple[_Asked, ...]]]] = {}

    @classmethod
    def of(cls, tables: tuple[tuple[str, LinePattern, Signature], ...]) -> None:
        """Forget everything when the tables are others than before."""
        if cls.tables is not tables:
            cls.tables, cls.shapes, cls.known = tables, {}, {}


def recall(head: str, rest: str) -> tuple[Found | None, bool]:
    """What was found in these words behind this `head`; whether it is certain, whatever numbers stand in front."""
    known = _Memory.known.get((head.translate(_ZEROS), rest))
    return (None, False) if known is None else (known[0], not known[1])


def likeness(values: Mapping[str, str], text: str) -> Likeness:
    """What equal events of one writer have in common, and what those that differ in numbers only have."""
    items = tuple(values.items())
    return (items, "" if items else text), tuple([(name, _NUMBER.sub("0", value)) for name, value in items])


class Collector:
    """Events in order; repeated ones are counted in the first of them."""

    def __init__(self) -> None:
        self.num_dropped = 0
        self._events: list[Event] = []
        self._same: dict[tuple[object, ...], int] = {}
        self._alike: dict[tuple[object, ...], tuple[int, int]] = {}

    def add(self, event: Event, alike: Likeness | None = None) -> int | None:
        """Take it in; where it is now, None when it was only counted.  `alike`: its likeness, where that is known."""
        o = event.origin
        who = (event.signature, o.host, o.pid, o.rank, o.local_rank, o.node)
        same, shape = alike or likeness(event.values, event.text)
        exact = (who, same)
        at = self._same.get(exact)
        if at is not None:
            self._count(at, event)
            return None
        number, last = self._alike.get((who, shape), (0, 0))
        if number >= MAX_KEPT or len(self._events) >= MAX_EVENTS:
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
        self._events[at] = replace(self._events[at], **changes)

    def __getitem__(self, at: int) -> Event:
        return self._events[at]

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def __len__(self) -> int:
        return len(self._events)


def values_of(match: re.Match[str]) -> dict[str, str]:
    """What the pattern's named groups caught."""
    return {name: value[:MAX_EVENT_TEXT] for name, value in match.groupdict().items() if value is not None}
