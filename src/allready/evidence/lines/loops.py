"""Stretches of operation lines that come again: a training loop, or what another rank of the same job printed.

The other sieves look at every line.  A job's operations come in the same order in every iteration and on every rank,
so here the bytes of many iterations are compared at once with a pattern: all of them but the fields that may differ
(`coll.CollLine.variable`).  Nothing is recognised that `coll.parse` would not parse to the same operations.
"""

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from allready.evidence.lines.coll import VARIABLE_LOW, CollLine
from allready.evidence.lines.literals import Ints
from allready.evidence.lines.templates import Bytes, Codes
from allready.evidence.reading import OpShape

MAX_LINES = 512
MAX_BYTES = 98_304
"""Of a pattern."""

_MAX_PERIODS = 24  # that are tried
_MAX_STRETCHES = 24  # places at which one is looked for, in one run of operations
_WINDOW_BYTES = 131_072  # compared at once
_SHIFT, _CLASS = 0x40 - VARIABLE_LOW, 0xC0  # `0` to `o`, and nothing else, is 0x40 to 0x7F then
_OPEN, _HEAD, _COMM = b"\0", b"\1", b"\2"  # stand where lines differ; no plain line has such bytes
_MAX_COMMS = 200
_MANY_LINES = 4_096
_MAX_REPEATED = 16
_MAX_SHAPED_BYTES = 1 << 20  # of one pattern, with heads and counters of many sizes


class Stretch(NamedTuple):
    """Places [first, first + lines) of a run; what follows repeats it for a while, or does not."""

    first: int
    lines: int
    is_loop: bool


def stretches(ids: Ints) -> list[Stretch]:
    """What a run of operations consists of, each given as a number: loops, and what stands between them.

    A loop is looked for at a few places only, so that a run without any costs little.
    """
    found: list[Stretch] = []
    at = loose = 0
    for _ in range(_MAX_STRETCHES):
        if at >= len(ids):
            break
        period, end = _loop_at(ids, at)
        if period:
            if at > loose:
                found.append(Stretch(loose, at - loose, is_loop=False))
            found.append(Stretch(at, period, is_loop=True))
            at = loose = end
        else:
            at += 1 + (at - loose) // 2
    if len(ids) > loose:
        found.append(Stretch(loose, len(ids) - loose, is_loop=False))
    return [one for one in found if one.lines <= MAX_LINES]


def _loop_at(ids: Ints, at: int) -> tuple[int, int]:
    """The period of the longest loop that begins there, and where it ends; period 0 without one."""
    best = (0, at)
    for period in _periods(ids[at : at + 3 * MAX_LINES]):
        if not np.array_equal(ids[at : at + 2 * period], ids[at + period : at + 3 * period]):
            continue
        differ = np.flatnonzero(ids[at + period :] != ids[at:-period])
        end = at + period + int(differ[0]) if len(differ) else len(ids)
        if end > best[1]:
            best = (period, end)
        if end == len(ids):
            break
    return best


def _periods(ids: Ints) -> list[int]:
    """What may be the period of a loop at the beginning, the shortest first.

    Most loops have an operation that comes once in a round; of others the first operation tells.
    """
    values, counts = np.unique(ids, return_counts=True)
    rarest = values[counts >= 3][np.argmin(counts[counts >= 3])] if (counts >= 3).any() else ids[0]
    periods: set[int] = set()
    for value in (rarest, ids[0]):
        places = np.flatnonzero(ids == value)[: _MAX_PERIODS + 1]
        periods.update((places[1:] - places[0]).tolist())
    return sorted(period for period in periods if period <= MAX_LINES and 3 * period <= len(ids))


class Match(NamedTuple):
    """`num` lines were recognised, the first of them in `phase`; the next begins at byte `end`."""

    phase: int
    num: int
    end: int


class Pattern:
    """Operation lines of one process that follow each other, whoever writes them and wherever its counter is.

    Left open are the head of the lines, the communicators, and how many digits the counter has where all lines have
    equally many.  `slots`: by line, a number for its communicator; `kinds`: one for that and its operation.  `key` says
    which pattern it is.
    """

    def __init__(self, texts: Sequence[bytes], lines: Sequence[CollLine], slots: Sequence[int]) -> None:
        self.lines, self.slots = tuple(lines), tuple(slots)
        self.num_slots = max(slots) + 1
        widths = {line.variable[0][1] - line.variable[0][0] for line in lines}
        self._is_even = len(widths) == 1
        self._parts = [_parts(text, line) for text, line in zip(texts, lines, strict=True)]
        self.key = b"".join(
            b"%d %d " % (slot, 0 if self._is_even else len(parts.number)) + parts.begin + parts.middle + parts.end
            for slot, parts in zip(slots, self._parts, strict=True)
        )
        self._words = [(parts.begin, parts.middle.rpartition(_OPEN)[2]) for parts in self._parts]
        kinds: dict[tuple[int, OpShape], int] = {}
        self.kinds = tuple(
            kinds.setdefault((slot, line.shape), len(kinds)) for slot, line in zip(slots, lines, strict=True)
        )
        self._shaped: dict[tuple[int, int, int], Shaped] = {}
        self._repeated: dict[tuple[tuple[int, int], ...], Codes] = {}

    def is_like(self, phase: int, text: bytes) -> bool:
        """Whether a line has the words of the pattern's: most that are no match are told apart here."""
        begin, middle = self._words[phase]
        return begin in text and middle in text

    def __len__(self) -> int:
        return len(self.lines)

    def repeated(self, numbers: tuple[tuple[int, int], ...]) -> Codes:
        """Two numbers of each line as two rows, again and again; the ranks of a job ask for the same ones."""
        found = self._repeated.get(numbers)
        if found is None:
            if len(self._repeated) >= _MAX_REPEATED:
                self._repeated.clear()
            times = -(-_MANY_LINES // len(numbers))
            found = self._repeated[numbers] = np.tile(np.array(numbers, np.uint16).T, times)
            found.flags.writeable = False
        return found

    def shaped(self, head_size: int, comm_size: int, num_digits: int) -> "Shaped":
        """With so many bytes where it is open."""
        key = head_size, comm_size, num_digits if self._is_even else 0
        found = self._shaped.get(key)
        if found is None:
            if sum(len(one.shift) for one in self._shaped.values()) > _MAX_SHAPED_BYTES:
                self._shaped.clear()
            fields = [
                (
                    _HEAD * head_size + parts.begin,
                    _OPEN * num_digits if self._is_even else parts.number,
                    parts.middle,
                    _open_comm(slot, comm_size) + parts.end,
                )
                for slot, parts in zip(self.slots, self._parts, strict=True)
            ]
            found = self._shaped[key] = Shaped(self, head_size, comm_size, fields)
        return found


class _Parts(NamedTuple):
    """An operation line from its head on, without its communicator.  What may differ in `middle` and `end` is `\\0`."""

    begin: bytes
    number: bytes
    middle: bytes
    end: bytes


def _parts(text: bytes, line: CollLine) -> _Parts:
    form = bytearray(text)
    for start, end in line.variable:
        form[start:end] = _OPEN * (end - start)
    (number, after), (start, end) = line.variable[0], line.comm_at
    return _Parts(*(bytes(form[a:b]) for a, b in ((line.head, number), (number, after), (after, start), (end, None))))


class Shaped:
    """A pattern whose open places have sizes.

    `sizes`: of the lines, twice in a row.  `phases`: by size, the lines that have it.  `begins`: where a line begins;
    `ends`: where one ends, behind the last one it goes on with the first; `newlines`: where its newline stands.
    """

    def __init__(self, pattern: Pattern, head_size: int, comm_size: int, lines: Sequence[Sequence[bytes]]) -> None:
        self.pattern = pattern
        self.head_size, self.comm_size = head_size, comm_size
        texts = [b"".join(line) for line in lines]
        self.sizes = tuple(map(len, texts)) * 2
        self.begins = tuple(itertools.accumulate(self.sizes[: len(texts)], initial=0))
        self.phases: dict[int, list[int]] = {}
        for phase, text in enumerate(texts):
            self.phases.setdefault(len(text), []).append(phase)
        self._form = b"".join(texts)
        is_open = np.frombuffer(self._form, np.uint8) == _OPEN[0]
        self._form = self._form.replace(_OPEN, b"0")
        self.times = 2 + _WINDOW_BYTES // self.begins[-1]  # so that there is enough behind every line
        self.shift: Bytes = np.tile(np.where(is_open, np.uint8(_SHIFT), np.uint8(0)), self.times)
        self.mask: Bytes = np.tile(np.where(is_open, np.uint8(_CLASS), np.uint8(0xFF)), self.times)
        self.ends = list(itertools.accumulate(self.sizes[: len(texts)] * self.times))
        self.newlines: Ints = np.array(self.ends, np.int64) - 1

    def filled(self, head: bytes, comms: Sequence[bytes]) -> "Filled":
        """As one process writes it."""
        data = self._form.replace(_HEAD * self.head_size, head)
        for slot, comm in enumerate(comms):
            data = data.replace(_open_comm(slot, self.comm_size), comm)
        want = np.frombuffer(data, np.uint8) + self.shift[: len(data)]
        return Filled(self, np.tile(want, self.times))


class Filled(NamedTuple):
    """A pattern as one process writes it."""

    shaped: Shaped
    want: Bytes

    def match(self, data: Bytes, start: int, stop: int, phase: int) -> Match:
        """How far the lines that begin at `start` are those of the pattern from `phase` on, again and again."""
        shaped = self.shaped
        at, line, num = start, phase, 0
        while True:
            begin = shaped.begins[line]
            most = bisect_right(shaped.ends, begin + min(_WINDOW_BYTES, stop - at), line)
            # Behind what is something else newlines stand elsewhere: so much need not be compared.
            ends = data.take(shaped.newlines[line:most] + (at - begin)).tobytes()
            some = most - line
            if ends.count(b"\n") != some:
                some -= len(ends.lstrip(b"\n"))
            if not some:
                break
            size = shaped.ends[line + some - 1] - begin
            out = data[at : at + size] + shaped.shift[begin : begin + size]
            out ^= self.want[begin : begin + size]
            out &= shaped.mask[begin : begin + size]
            is_same = not np.maximum.reduce(out)
            if not is_same:
                some = bisect_right(shaped.ends, begin + int((out != 0).argmax()), line, most) - line
                size = shaped.ends[line + some - 1] - begin if some else 0
            num += some
            at += size
            if not is_same or line + some < most:
                break
            line = (line + some) % len(shaped.pattern)
        return Match(phase, num, at)


def _open_comm(slot: int, size: int) -> bytes:
    return (_COMM + bytes((slot + 3,)) * (size - 1))[:size]


def pattern_of(texts: Sequence[bytes], lines: Sequence[CollLine]) -> Pattern | None:
    """The pattern of these lines, newlines included; None where they are too long, or not of one process each of whose
    lines begins alike."""
    kinds = {(text[: line.head], line.comm_at[1] - line.comm_at[0]) for text, line in zip(texts, lines, strict=True)}
    if len(kinds) != 1 or not all(map(is_plain, texts, lines)) or sum(map(len, texts)) > MAX_BYTES:
        return None
    comms: dict[str, int] = {}
    slots = [comms.setdefault(line.comm, len(comms)) for line in lines]
    return Pattern(texts, lines, slots) if len(comms) <= _MAX_COMMS else None


def is_plain(text: bytes, line: CollLine) -> bool:
    """Whether an operation's line has nothing but what NCCL itself writes."""
    return not line.front and line.rank is None and not any(byte in text for byte in (_OPEN, _HEAD, _COMM, b"\r"))
