"""Events of a log: which signature knows a line, and equal lines put together."""

import functools
import re
from collections.abc import Iterator

from msgspec.structs import replace

from allready.evidence.log.line import MAX_EVENT_TEXT
from allready.model import Event
from allready.patterns import compiled
from allready.signatures import LinePattern, Signature, table

MAX_EVENTS = 50_000
MAX_KEPT = 16
"""Events of one process and signature that differ in numbers are kept up to as many, then counted."""

_MAX_KNOWN = 8192
_MAX_KNOWN_CHARS = 300
_MAX_SHAPE_CHARS = 1000
_ZEROS = dict.fromkeys(range(ord("0"), ord("9") + 1), "0")
_POINTER = r"0x[0-9a-fA-F]+"
_NUMBER = r"\d+"

_Candidate = tuple[LinePattern, Signature]
SignatureMatch = tuple[Signature, re.Match[str]]


class Finder:
    """Asks the signature tables, and remembers the answers for lines.

    One finder serves all logs that its owner reads: the files of a thousand ranks have the same lines.
    """

    def __init__(self) -> None:
        self._of_words: dict[tuple[str, str], tuple[SignatureMatch | None, tuple[_Candidate, ...]]] = {}
        self._front = self._front_shape = ""  # of the line before: those of one process begin alike

    def find(self, rest: str, text: str) -> SignatureMatch | None:
        """The first signature that knows the line: without its prefix, else the whole `text`."""
        front = text[: len(text) - len(rest)]
        if front != self._front:
            self._front, self._front_shape = front, front.translate(_ZEROS)
        key = (self._front_shape, rest)
        known = self._of_words.get(key)
        if known is None:
            known = self._ask(rest, text)
            if len(rest) <= _MAX_KNOWN_CHARS and text.endswith(rest):
                if len(self._of_words) >= _MAX_KNOWN:
                    self._of_words.clear()
                self._of_words[key] = known
        return known[0] or _first(known[1], text)

    def _ask(self, rest: str, text: str) -> tuple[SignatureMatch | None, tuple[_Candidate, ...]]:
        """What is found in the line's own message; where nothing is, the candidates for each whole line like it."""
        shape = (compiled(_POINTER).sub("0x", text) if "0x" in text else text).translate(_ZEROS)
        candidates = (_known_candidates if len(shape) <= _MAX_SHAPE_CHARS else _candidates)(shape)
        found = _first(candidates, rest)
        front = text[: len(text) - len(rest)]
        across = tuple([one for one in candidates if one[0].anchor not in rest and one[0].anchor not in front])
        if across and (first := _first(across, text)) is not None:  # who writes such words is a part of what they say
            order = [signature for _, signature in candidates]
            if found is None or order.index(first[0]) < order.index(found[0]):
                return None, across
        if found is not None or rest == text:
            return found, ()
        if _first(candidates, text) is None:  # a pattern that takes all digits alike does not know its like either
            candidates = tuple([one for one in candidates if not one[0].is_blind])
        return None, candidates


def _candidates(shape: str) -> tuple[_Candidate, ...]:
    """Patterns that may know a line of this shape.  Anchors have no digits, so numbers and pointers decide nothing."""
    return tuple([(line, signature) for anchor, line, signature in table.by_anchor() if anchor in shape])


_known_candidates = functools.lru_cache(_MAX_KNOWN)(_candidates)


def _first(candidates: tuple[_Candidate, ...], text: str) -> SignatureMatch | None:
    for line, signature in candidates:
        if line.anchor in text and (match := line.pattern.search(text)) is not None:
            return signature, match
    return None


class Collector:
    """Events in order; repeated ones are counted in the first of them."""

    def __init__(self) -> None:
        self.num_dropped = 0
        self._events: list[Event] = []
        self._same: dict[tuple[object, ...], int] = {}
        self._alike: dict[tuple[object, ...], tuple[int, int]] = {}

    def add(self, event: Event) -> int | None:
        """Take it in; where it is now, None when it was only counted."""
        o, values = event.origin, tuple(event.values.items())
        who = (event.signature, o.host, o.pid, o.rank, o.local_rank, o.node)
        exact = (who, values, "" if values else event.text, event.stall)
        at = self._same.get(exact)
        if at is not None:
            self._count(at, event)
            return None
        shape = tuple([(name, compiled(_NUMBER).sub("0", value)) for name, value in values])
        alike = (who, shape, event.stall and event.stall.tensors)
        number, last = self._alike.get(alike, (0, 0))
        if number >= MAX_KEPT or len(self._events) >= MAX_EVENTS:
            if number:
                self._count(last, event)
            else:
                self.num_dropped += event.count
            return None
        self._events.append(event)
        at = len(self._events) - 1
        self._same[exact] = at
        self._alike[alike] = (number + 1, at)
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
