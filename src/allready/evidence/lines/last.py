"""The last line of every process, operations and repeated lines included."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from allready.evidence.lines.chunk import APART, Lines
from allready.evidence.lines.model import LineLimits, RawLine, Repeat
from allready.evidence.lines.native import Flags, Ints
from allready.evidence.lines.streams import Builder

_MOST_WAITING_BYTES = 4 << 20


class _Waiting(Struct):
    """The last lines of a chunk by the numbers of their processes; `data` has them whole, at `places`."""

    names: Ints
    numbers: Ints
    offsets: Ints
    data: bytes | bytearray
    places: Ints
    lengths: Ints


class LastLines:
    """Known lines come a chunk at a time, the others one by one.

    What a chunk gives waits as bytes: where many processes write into one log, the next chunk has later lines of most.
    """

    def __init__(self, limits: LineLimits) -> None:
        self._found: dict[str, RawLine] = {}
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._limits = limits
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._streams: Ints = np.empty(0, np.int64)
        self._repeats: Ints = np.empty(0, np.int64)
        self._is_settled: Flags = np.zeros(0, np.bool_)
        """By number: of which processes there is an object."""

    def set(self, process: str, line: RawLine) -> None:
        """A line of a process, if it is its last one so far."""
        before = self._found.get(process)
        if before is None:
            if len(self._found) < self._limits.processes:
                self._found[process] = line
        elif before.number <= line.number:
            self._found[process] = line

    def add(self, lines: Lines, builders: Sequence[Builder], repeats: Sequence[Repeat]) -> None:
        """The known lines of a chunk.  `builders`, `repeats`: all streams, and all repeats."""
        if len(builders) > len(self._streams):
            origins = [builder.stream.origin for builder in builders[len(self._streams) :]]
            new = [self._number(f"{origin.host}:{origin.pid}") for origin in origins]
            self._streams = np.concatenate((self._streams, np.array(new, np.int64)))
        if len(repeats) > len(self._repeats):
            new = [self._number(repeat.process) for repeat in repeats[len(self._repeats) :]]
            self._repeats = np.concatenate((self._repeats, np.array(new, np.int64)))
        known = np.flatnonzero(lines.targets > APART)
        if not len(known):
            return
        # One table for both: a stream is found from the front, a repeat (-1 - index) from the back.
        table = np.concatenate((self._streams, self._repeats[::-1]))
        last = np.full(len(self._names) + 1, -1, np.int64)
        last[table[lines.targets[known]]] = known  # of equal indexes the last one stays; -1 is the place of no process
        names = np.flatnonzero(last[:-1] >= 0)
        names = names[np.argsort(last[names])]
        at = last[names]
        data, size, places = lines.spliced(at)
        if data is lines.buffer:  # which the next chunk overwrites
            data = bytes(memoryview(data)[:size])
        rows = (names, lines.base + at + 1, lines.offset + lines.starts[at], data, places, lines.lengths[at])
        self._waiting.append(_Waiting(*rows))
        self._waiting_bytes += size
        if len(self._is_settled) < len(self._names):
            self._is_settled = np.concatenate((self._is_settled, np.zeros(len(self._names), np.bool_)))
        if not self._is_settled[names].all() or self._waiting_bytes > _MOST_WAITING_BYTES:
            self._settle()

    def _settle(self) -> None:
        """Make objects of the lines that were not followed by others."""
        last = np.full(len(self._names), -1, np.int64)
        for index, block in enumerate(self._waiting):
            last[block.names] = index
        for index, block in enumerate(self._waiting):
            some = np.flatnonzero(last[block.names] == index)
            self._is_settled[block.names] = True
            columns = (block.names, block.numbers, block.offsets, block.places, block.lengths)
            for name, number, offset, place, length in zip(*(x[some].tolist() for x in columns), strict=True):
                text = bytes(block.data[place : place + min(length, self._limits.clip_bytes)]).rstrip(b"\r")
                self.set(self._names[name], RawLine(number=number, offset=offset, text=text))
        self._waiting.clear()
        self._waiting_bytes = 0

    @property
    def found(self) -> dict[str, RawLine]:
        """By process."""
        self._settle()
        return self._found

    def _number(self, name: str) -> int:
        """-1 without a name, or when there are too many."""
        if not name or (len(self._numbers) >= self._limits.processes and name not in self._numbers):
            return -1
        number = self._numbers.setdefault(name, len(self._numbers))
        if number == len(self._names):
            self._names.append(name)
        return number
