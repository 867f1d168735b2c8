"""Loops of operation lines: what a training loop prints in every iteration, and every rank of its job alike.

The usual way looks at every line.  Here the bytes of many iterations are compared with a known loop at once: all of
them but the fields that may differ (`coll.CollLine.variable`).  Nothing is recognised that `coll.parse` would not parse
to the same operations.

A loop becomes definite in three steps: a `LineLoop` leaves open which process writes it and how long its fields are; a
`SizedLoop` has their lengths, so it knows where each line begins; a `BoundLoop` is that of one process, byte for byte.
"""

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from allready.evidence.lines.coll import VARIABLE_LOW, CollLine
from allready.evidence.lines.native import Ints
from allready.evidence.lines.templates import Bytes
from allready.evidence.reading import OpShape

MAX_LINES = 512
MAX_BYTES = 98_304  # of a loop
_MAX_PERIODS = 24  # that are tried
_MAX_SEARCHES = 24  # places of one run of operations at which a loop is searched
_WINDOW_BYTES = 131_072  # compared at once
_MAX_COMMS = 200
_MAX_SIZED_BYTES = 1 << 20  # of one loop, with heads and counters of many lengths

_SHIFT, _CLASS = 0x40 - VARIABLE_LOW, 0xC0
"""A byte that may vary is one from `0` to `o`: plus `_SHIFT` it is 0x40 to 0x7F, so its upper two bits are equal."""

_OPEN, _HEAD, _COMM = b"\0", b"\1", b"\2"
"""Stand where lines differ: a field that varies, the head, the communicator.  No plain line has such bytes."""


class Segment(NamedTuple):
    """Places [first, first + num) of a run of operations; a loop is repeated by what follows it."""

    first: int
    num: int
    is_loop: bool


def segments_of(ids: Ints) -> list[Segment]:
    """What a run of operations consists of, each given as a number: loops, and what stands between them.

    A loop is searched at a few places only, so that a run without any costs little.
    """
    found: list[Segment] = []
    at = loose = 0
    for _ in range(_MAX_SEARCHES):
        if at >= len(ids):
            break
        period, end = _loop_at(ids, at)
        if period:
            if at > loose:
                found.append(Segment(loose, at - loose, is_loop=False))
            found.append(Segment(at, period, is_loop=True))
            at = loose = end
        else:
            at += 1 + (at - loose) // 2
    if len(ids) > loose:
        found.append(Segment(loose, len(ids) - loose, is_loop=False))
    return [one for one in found if one.num <= MAX_LINES]


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

    Most loops have an operation that comes once per iteration; for the others the first operation decides.
    """
    values, counts = np.unique(ids, return_counts=True)
    rarest = values[counts >= 3][np.argmin(counts[counts >= 3])] if (counts >= 3).any() else ids[0]
    periods: set[int] = set()
    for value in (rarest, ids[0]):
        places = np.flatnonzero(ids == value)[: _MAX_PERIODS + 1]
        periods.update((places[1:] - places[0]).tolist())
    return sorted(period for period in periods if period <= MAX_LINES and 3 * period <= len(ids))


class LoopMatch(NamedTuple):
    """`num` lines were recognised, the first of them is line `phase` of the loop; the next begins at byte `end`."""

    phase: int
    num: int
    end: int


class _Parts(NamedTuple):
    """An operation line from its head on, without its communicator.  What may vary in `middle` and `end` is `\\0`."""

    begin: bytes
    counter: bytes
    middle: bytes
    end: bytes


def _parts(text: bytes, line: CollLine) -> _Parts:
    form = bytearray(text)
    for start, end in line.variable:
        form[start:end] = _OPEN * (end - start)
    (counter, after), (start, end) = line.variable[0], line.comm_at
    return _Parts(*(bytes(form[a:b]) for a, b in ((line.head, counter), (counter, after), (after, start), (end, None))))


class LineLoop:
    """Operation lines of one process that follow each other, of any process and at any value of its counter.

    Left open are the head of the lines, the communicators, and how many digits the counter has where all lines have
    equally many.  `comms`: by line, a number for its communicator; `kinds`: one for that and its operation.  `key` says
    which loop it is.
    """

    def __init__(self, texts: Sequence[bytes], lines: Sequence[CollLine], comms: Sequence[int]) -> None:
        self.lines, self.comms = tuple(lines), tuple(comms)
        self.num_comms = max(comms) + 1
        widths = {line.variable[0][1] - line.variable[0][0] for line in lines}
        self._is_even = len(widths) == 1
        self._parts = [_parts(text, line) for text, line in zip(texts, lines, strict=True)]
        self.key = b"".join(
            b"%d %d " % (comm, 0 if self._is_even else len(parts.counter)) + parts.begin + parts.middle + parts.end
            for comm, parts in zip(comms, self._parts, strict=True)
        )
        self._words = [(parts.begin, parts.middle.rpartition(_OPEN)[2]) for parts in self._parts]
        kinds: dict[tuple[int, OpShape], int] = {}
        self.kinds = tuple(
            kinds.setdefault((comm, line.shape), len(kinds)) for comm, line in zip(comms, lines, strict=True)
        )
        self._sized: dict[tuple[int, int, int], SizedLoop] = {}

    def __len__(self) -> int:
        return len(self.lines)

    def has_words_of(self, phase: int, text: bytes) -> bool:
        """Whether a line has the fixed words of line `phase`: most that are no match are kept apart here."""
        begin, middle = self._words[phase]
        return begin in text and middle in text

    def sized(self, head_size: int, comm_size: int, num_digits: int) -> "SizedLoop":
        """The loop with fields of these lengths."""
        key = head_size, comm_size, num_digits if self._is_even else 0
        found = self._sized.get(key)
        if found is None:
            if sum(len(one.shift) for one in self._sized.values()) > _MAX_SIZED_BYTES:
                self._sized.clear()
            texts = [
                _HEAD * head_size
                + parts.begin
                + (_OPEN * num_digits if self._is_even else parts.counter)
                + parts.middle
                + _open_comm(comm, comm_size)
                + parts.end
                for comm, parts in zip(self.comms, self._parts, strict=True)
            ]
            found = self._sized[key] = SizedLoop(self, head_size, comm_size, texts)
        return found


class SizedLoop:
    """A loop whose open fields have lengths.

    `sizes`: of the lines, twice in a row.  `phases`: by size, the lines that have it.  `begins`: where a line begins;
    `ends`: where one ends, behind the last one it goes on with the first; `newlines`: where its newline stands.
    """

    def __init__(self, loop: LineLoop, head_size: int, comm_size: int, texts: Sequence[bytes]) -> None:
        self.loop = loop
        self.head_size, self.comm_size = head_size, comm_size
        self.sizes = tuple(map(len, texts)) * 2
        self.begins = tuple(itertools.accumulate(self.sizes[: len(texts)], initial=0))
        self.phases: dict[int, list[int]] = {}
        for phase, text in enumerate(texts):
            self.phases.setdefault(len(text), []).append(phase)
        form = b"".join(texts)
        is_open = np.frombuffer(form, np.uint8) == _OPEN[0]
        self._form = form.replace(_OPEN, b"0")
        self._times = 2 + _WINDOW_BYTES // self.begins[-1]  # so that there is enough behind every line
        self.shift: Bytes = np.tile(np.where(is_open, np.uint8(_SHIFT), np.uint8(0)), self._times)
        self.mask: Bytes = np.tile(np.where(is_open, np.uint8(_CLASS), np.uint8(0xFF)), self._times)
        self.ends = list(itertools.accumulate(self.sizes[: len(texts)] * self._times))
        self.newlines: Ints = np.array(self.ends, np.int64) - 1

    def expected(self, head: bytes, comms: Sequence[bytes]) -> Bytes:
        """The bytes that a process with this head and these communicators writes, shifted as `shift` says."""
        data = self._form.replace(_HEAD * self.head_size, head)
        for number, comm in enumerate(comms):
            data = data.replace(_open_comm(number, self.comm_size), comm)
        return np.tile(np.frombuffer(data, np.uint8) + self.shift[: len(data)], self._times)


class BoundLoop(Struct, eq=False):
    """A loop as one process writes it.  `lines`: an operation of each communicator, None where none was seen yet."""

    sized: SizedLoop
    expected: Bytes
    lines: tuple[CollLine | None, ...]
    process: str

    @property
    def loop(self) -> LineLoop:
        """The loop that it is."""
        return self.sized.loop

    def resized(self, sized: SizedLoop, head: bytes) -> "BoundLoop | None":
        """The same with a counter of another width; None where not all communicators are known."""
        comms = [line.comm.encode() for line in self.lines if line is not None]
        if len(comms) < len(self.lines) or any(len(comm) != sized.comm_size for comm in comms):
            return None
        return BoundLoop(sized, sized.expected(head, comms), self.lines, self.process)

    def has_comm_of(self, text: bytes, comm: int) -> bool:
        """Whether an operation's line is of the communicator with this number."""
        line = self.lines[comm]
        return line is not None and b" comm " + line.comm.encode() + b" " in text

    def match(self, data: Bytes, start: int, stop: int, phase: int) -> LoopMatch:
        """How far the lines that begin at `start` are those of the loop from `phase` on, again and again."""
        sized = self.sized
        at, line, num = start, phase, 0
        while True:
            begin = sized.begins[line]
            most = bisect_right(sized.ends, begin + min(_WINDOW_BYTES, stop - at), line)
            # Where other lines follow, newlines stand elsewhere: from there on nothing need be compared.
            ends = data.take(sized.newlines[line:most] + (at - begin)).tobytes()
            some = most - line
            if ends.count(b"\n") != some:
                some -= len(ends.lstrip(b"\n"))
            if not some:
                break
            size = sized.ends[line + some - 1] - begin
            differs = data[at : at + size] + sized.shift[begin : begin + size]
            differs ^= self.expected[begin : begin + size]
            differs &= sized.mask[begin : begin + size]
            is_same = not np.maximum.reduce(differs)
            if not is_same:
                some = bisect_right(sized.ends, begin + int((differs != 0).argmax()), line, most) - line
                size = sized.ends[line + some - 1] - begin if some else 0
            num += some
            at += size
            if not is_same or line + some < most:
                break
            line = (line + some) % len(sized.loop)
        return LoopMatch(phase, num, at)


def _open_comm(number: int, size: int) -> bytes:
    return (_COMM + bytes((number + 3,)) * (size - 1))[:size]


def loop_of(texts: Sequence[bytes], lines: Sequence[CollLine]) -> LineLoop | None:
    """The loop of these lines, newlines included; None where they are too long, or not of one process each of whose
    lines begins alike."""
    kinds = {(text[: line.head], line.comm_at[1] - line.comm_at[0]) for text, line in zip(texts, lines, strict=True)}
    if len(kinds) != 1 or not all(map(is_plain, texts, lines)) or sum(map(len, texts)) > MAX_BYTES:
        return None
    numbers: dict[str, int] = {}
    comms = [numbers.setdefault(line.comm, len(numbers)) for line in lines]
    return LineLoop(texts, lines, comms) if len(numbers) <= _MAX_COMMS else None


def is_plain(text: bytes, line: CollLine) -> bool:
    """Whether an operation's line has nothing but what NCCL itself writes."""
    return not line.front and line.rank is None and not any(byte in text for byte in (_OPEN, _HEAD, _COMM, b"\r"))
