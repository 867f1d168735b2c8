"""The last line of every process, operations and repeated lines included."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from allready.evidence.lines.chunk import APART, Lines
from allready.evidence.lines.model import LineLimits, RawLine, Repeat
from allready.evidence.lines.native import Ints
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
        self._found: dict[str, RawLine | None] = {}  # None where the line waits
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._limits = limits
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._streams: Ints = np.empty(0, np.int64)
        self._repeats: Ints = np.empty(0, np.int64)
        self._num_placed = 0  # processes by number that have a place, unless there were too many

    def set(self, process: str, line: RawLine) -> None:
        """A line of a process, if it is its last one so far."""
        if process in self._found:
            before = self._found[process]
            if before is None or before.number <= line.number:
                self._found[process] = line
        elif len(self._found) < self._limits.processes:
            self._found[process] = line

    def add(self, lines: Lines, builders: Sequence[Builder], repeats: Sequence[Repeat]) -> None:
        """The known lines of a chunk.  `builders`, `repeats`: all streams, and all repeats."""
        if len(builders) > len(self._streams):
            origins = [builder.stream.origin for builder in builders[len(self._streams) :]]
            new = [self.number(f"{origin.host}:{origin.pid}") for origin in origins]
            self._streams = np.concatenate((self._streams, np.array(new, np.int64)))
        if len(repeats) > len(self._repeats):
            new = [self.number(repeat.process) for repeat in repeats[len(self._repeats) :]]
            self._repeats = np.concatenate((self._repeats, np.array(new, np.int64)))
        known = np.flatnonzero(lines.targets > APART)
        if not len(known):
            return
        # One table for both: a stream is found from the front, a repeat (-1 - index) from the back.
        table = np.concatenate((self._streams, self._repeats[::-1]))
        last = np.full(len(self._names) + 1, -1, np.int64)
        last[table[lines.targets[known]]] = known  # of equal indexes the last one stays; -1 is the place of no process
        names = np.flatnonzero(last[:-1] >= 0)
        self.add_last(lines, names, last[names])

    def add_last(self, lines: Lines, names: Ints, at: Ints) -> None:
        """The lines `at`, each the last one in the chunk of its kind, of different processes by their numbers."""
        order = np.argsort(at)
        names, at = names[order], at[order]
        data, size, places = lines.spliced(at)
        if data is lines.buffer:  # which the next chunk overwrites
            data = bytes(memoryview(data)[:size])
        rows = (names, lines.base + at + 1, lines.offset + lines.starts[at], data, places, lines.lengths[at])
        self._waiting.append(_Waiting(*rows))
        self._waiting_bytes += size
        for name in names[names >= self._num_placed].tolist():
            if len(self._found) < self._limits.processes:
                self._found.setdefault(self._names[name], None)
        self._num_placed = len(self._names)
        if self._waiting_bytes > _MOST_WAITING_BYTES:
            self._settle((len(self._waiting) + 1) // 2)

    def _settle(self, num: int) -> None:
        """Make objects of the lines of the first `num` blocks that were not followed by others."""
        which, last = np.full((2, len(self._names)), -1, np.int64)
        for index, block in enumerate(self._waiting):
            later = block.numbers > last[block.names]
            which[block.names[later]], last[block.names[later]] = index, block.numbers[later]
        for index, block in enumerate(self._waiting[:num]):
            some = np.flatnonzero(which[block.names] == index)
            columns = (block.names, block.numbers, block.offsets, block.places, block.lengths)
            for name, number, offset, place, length in zip(*(x[some].tolist() for x in columns), strict=True):
                text = bytes(block.data[place : place + min(length, self._limits.clip_bytes)]).rstrip(b"\r")
                self.set(self._names[name], RawLine(number=number, offset=offset, text=text))
            self._waiting_bytes -= int(block.lengths.sum()) + len(block.lengths)
        del self._waiting[:num]

    @property
    def found(self) -> dict[str, RawLine]:
        """By process."""
        self._settle(len(self._waiting))
        return {process: line for process, line in self._found.items() if line is not None}

    def number(self, name: str) -> int:
        """What a process is known by, -1 without a name, or when there are too many."""
        if not name or (len(self._numbers) >= self._limits.processes and name not in self._numbers):
            return -1
        number = self._numbers.setdefault(name, len(self._numbers))
        if number == len(self._names):
            self._names.append(name)
        return number
