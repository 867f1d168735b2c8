"""Iteration markers: the words by which a training loop says where it is.

A usual marker is `step`, `iter` or `iteration` in any case, up to `_MAX_BETWEEN` of blanks, quotes and ``:=#|[(``, and
a number of up to twelve digits that does not go on (`12.5`, `12%`, `12s`).  It does not count when the word before says
that it is another thing: `max_steps`, `warmup step 3`, `eval iter 4`.  Found with arrays, because a log may consist of
nothing else.
"""

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from allready.errors import UsageError
from allready.evidence.lines.literals import places_of
from allready.evidence.lines.native import HashTable, Ints, Native
from allready.patterns import compiled_bytes

WORDS = (b"step", b"iter")  # every usual marker has one of these, in any case
_MAX_BETWEEN = 24
_MAX_DIGITS = 12
_WINDOW = 9 + _MAX_BETWEEN + _MAX_DIGITS + 3  # "iteration", what is between, the number and what ends it
_SHORT_WINDOW, _SHORT_DIGITS = 24, 8  # most numbers are recognised so; the others by a second look
PADDING = 64
_BETWEEN, _DIGIT, _GOES_ON, _DOT = 1, 2, 4, 8
_CLASSES = np.zeros(256, np.uint8)
_CLASSES[list(b" \t\"':=#|[(")] = _BETWEEN
_CLASSES[list(b"0123456789")] = _DIGIT | _GOES_ON
_CLASSES[list(b"%_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")] = _GOES_ON
_CLASSES[list(b".,")] = _DOT
_ATION = np.frombuffer(b"ation", np.uint8)

_BEFORE = 16
_NEWLINES = np.uint64(0x0A0A0A0A0A0A0A0A)
_FILLED = np.array([[0] * n + [255] * (_BEFORE - n) for n in range(_BEFORE + 1)], np.uint8)[:, ::-1].copy()
_FILLED = _FILLED.view(np.uint64)  # [n]: the first bytes of sixteen, all but the last n
_ONE_DIGIT = np.arange(256, dtype=np.uint8)
_ONE_DIGIT[list(b"0123456789")] = ord("0")
_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)
_OWN = rb"(?:(?<![a-z0-9_./-])|^)(?:global|current|cur|train|training)[_ ]?\Z"
_OTHER_THING = (
    rb"[a-z0-9_./-]\Z|(?:(?<![a-z])|^)(?:max|min|total|num|save|saving|saved|warm[_ -]?up|every|per|accumulation|accum"
    rb"|micro|log|logging|eval|evaluation|val|valid|validation|test|inner|sub|time|decay|last|start|final|best|resume"
    rb"|from|diffusion|sampling|optimizer)[_ -]{1,2}\Z"
)


class Marks(NamedTuple):
    """Markers by line: at most one for each, in order."""

    lines: Ints
    places: Ints
    iterations: Ints


NONE = Marks(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))


class Marker:
    """Finds markers: the usual ones, or what a user's regular expression says."""

    def __init__(self, pattern: str | None = None) -> None:
        self._pattern: re.Pattern[bytes] | None = None if pattern is None else compiled(pattern)
        self._known: dict[bytes, bool] = {}
        self._known_hashes: HashTable | None = None  # of one `Native`

    @property
    def is_own(self) -> bool:
        """Whether it is the user's expression."""
        return self._pattern is not None

    def find(self, data: bytes | bytearray, length: int, starts: Ints) -> Marks:
        """The first marker of each line; `starts` are the lines' first bytes.

        `data` is longer than `length` by `PADDING` bytes at least, and has a newline at `length - 1` or behind.
        """
        if self._pattern is not None:
            return _by_pattern(self._pattern, data, length, starts)
        places = places_of(data, length, WORDS, any_case=True)
        if not len(places):
            return NONE
        places, iterations = _numbers(data, places)
        if not len(places):
            return NONE
        lines = np.searchsorted(starts, places, "right") - 1
        good = self._are_iterations(data, places, starts[lines])
        lines, firsts = np.unique(lines[good], return_index=True)
        return Marks(lines, places[good][firsts], iterations[good][firsts])

    def find_in(self, native: Native, data: npt.NDArray[np.uint8], starts: Ints, lengths: Ints, at: Ints) -> Marks:
        """The same of the usual marker in the lines `at` of a buffer, by the compiled scanner."""
        if self._known_hashes is None:
            self._known_hashes = native.table()

        def is_good(index: int, place: int) -> bool:
            return self._is_good(data[max(int(starts[at[index]]), place - _BEFORE) : place].tobytes())

        return Marks(
            *native.marks((data, starts, lengths, at), (_MAX_BETWEEN, _MAX_DIGITS), self._known_hashes, is_good)
        )

    def _are_iterations(self, data: bytes | bytearray, places: Ints, begins: Ints) -> npt.NDArray[np.bool_]:
        """Whether the words before say nothing against it; each different one is examined once."""
        good = np.ones(len(places), np.bool_)
        early = np.flatnonzero(places < _BEFORE)
        for index in early.tolist():
            good[index] = self._is_good(bytes(data[int(begins[index]) : int(places[index])]))
        late = np.flatnonzero(places >= _BEFORE)
        if len(late):
            view = np.lib.stride_tricks.as_strided(
                np.frombuffer(data, f"V{_BEFORE}", 1), (len(data) - _BEFORE + 1,), (1,), writeable=False
            )
            words = view[places[late] - _BEFORE].view(np.uint64).reshape(-1, 2)
            others = _FILLED[np.minimum(places[late] - begins[late], _BEFORE)]  # bytes of the line before
            words = (words & ~others) | (_NEWLINES & others)
            words = _ONE_DIGIT[words.view(np.uint8)].view(np.uint64)  # which digit it is does not matter
            _, firsts, which = np.unique(words @ _MIX, return_index=True, return_inverse=True)
            verdicts = [self._is_good(words[first].tobytes().rpartition(b"\n")[2]) for first in firsts.tolist()]
            good[late] = np.array(verdicts)[which]
        return good

    def _is_good(self, before: bytes) -> bool:
        is_good = self._known.get(before)
        if is_good is None:
            if len(self._known) > 10_000:
                self._known.clear()
            is_good = self._known[before] = not compiled_bytes(_OTHER_THING).search(
                compiled_bytes(_OWN).sub(b"", before.lower())
            )
        return is_good


def _numbers(data: bytes | bytearray, places: Ints) -> tuple[Ints, Ints]:
    """Those of the words that a number follows, and the numbers."""
    follows = np.frombuffer(data, np.uint8)[places + 4]
    places = places[((_CLASSES[follows] & (_BETWEEN | _DIGIT)) != 0) | (follows | 0x20 == ord("a"))]
    good, values, is_open = _numbers_within(data, places, _SHORT_WINDOW, _SHORT_DIGITS)
    rest = np.flatnonzero(is_open)
    if len(rest):
        good[rest], values[rest], _ = _numbers_within(data, places[rest], _WINDOW, _MAX_DIGITS)
    return places[good], values[good]


def _numbers_within(
    data: bytes | bytearray, places: Ints, window: int, most: int
) -> tuple[npt.NDArray[np.bool_], Ints, npt.NDArray[np.bool_]]:
    """Whether a number follows each word, which one, and whether that cannot be known within so many bytes of the word
    and so many digits."""
    view = np.lib.stride_tricks.as_strided(
        np.frombuffer(data, f"V{window}", 1), (len(data) - window + 1,), (1,), writeable=False
    )
    cells = view[places].view(np.uint8).reshape(len(places), window)
    is_long = (cells[:, 0] | 0x20 == ord("i")) & ((cells[:, 4:9] | 0x20) == _ATION).all(axis=1)
    after_word = np.where(is_long, 9, 4)
    classes = _CLASSES[cells]
    # Where what is between ends: the first byte after the word that is something else.
    is_between = classes == _BETWEEN
    is_between[:, :4] = True
    is_between[is_long, 4:9] = True
    first = is_between.argmin(axis=1)
    first[is_between.all(axis=1)] = window
    last = window - most - 2  # with the digits and what ends them it is within the window
    is_open = first > last
    first = np.minimum(first, last)
    row = np.arange(len(places))
    good = ((classes[row, first] & _DIGIT) != 0) & (first - after_word <= _MAX_BETWEEN) & (first >= after_word)
    columns = first[:, None] + np.arange(most)
    digits = (classes[row[:, None], columns] & _DIGIT) != 0
    is_full = digits.all(axis=1)
    num = np.where(is_full, most, digits.argmin(axis=1))
    is_open |= good & is_full
    end = first + num
    good &= (classes[row, end] & _GOES_ON) == 0
    good &= ((classes[row, end] & _DOT) == 0) | ((classes[row, end + 1] & _DIGIT) == 0)
    values = np.zeros(len(places), np.int64)
    numbers = cells[row[:, None], columns]
    for column in range(int(num.max(initial=0))):
        is_digit = column < num
        values[is_digit] = values[is_digit] * 10 + numbers[is_digit, column] - 48
    return good, values, is_open


def compiled(pattern: str) -> re.Pattern[bytes]:
    """A user's expression.

    Raises UsageError: it is none, or has no group to hold the number.
    """
    try:
        found = re.compile(pattern.encode(), re.MULTILINE)
    except re.error as error:
        raise UsageError(
            "--iteration-marker {pattern!r} is not a regular expression: {error}", pattern=pattern, error=error
        ) from error
    if found.groups < 1:
        raise UsageError(
            "--iteration-marker {pattern!r} has no group for the number, as in 'iteration: (\\d+)'", pattern=pattern
        )
    return found


def _by_pattern(pattern: re.Pattern[bytes], data: bytes | bytearray, length: int, starts: Ints) -> Marks:
    ends = np.append(starts[1:], length)
    found: list[tuple[int, int, int]] = []
    match = pattern.search(data, 0, length)
    while match is not None:
        line = max(0, int(np.searchsorted(starts, match.start(), "right")) - 1)
        begin, end = int(starts[line]), int(ends[line])
        place: int = match.start()
        groups = match.groups()
        if match.end() >= end:  # it may have run into the next line
            again = pattern.search(bytes(data[begin:end]).rstrip(b"\r\n"))
            place, groups = begin, () if again is None else again.groups()
        text = next((group for group in groups if group is not None), b"")
        if text.isdigit() and len(text) <= 18:
            found.append((line, place, int(text)))
        match = pattern.search(data, end, length) if end < length else None
    if not found:
        return NONE
    table = np.array(found, np.int64)
    return Marks(table[:, 0], table[:, 1], table[:, 2])
