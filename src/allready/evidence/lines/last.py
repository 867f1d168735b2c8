"""The last line of every process, operations and repeated lines included."""

import numpy as np
from msgspec import Struct

from allready.evidence.lines.chunk import APART, Lines
from allready.evidence.lines.literals import Ints
from allready.evidence.lines.model import Limits, RawLine
from allready.evidence.lines.streams import Builder

_FEW = 32  # processes whose lines cost less than a copy of the chunk


class _Chunk(Struct):
    """A chunk that is gone: its bytes, and the last line of each process in it (-1: none)."""

    data: bytes | bytearray
    lines: Lines
    last: Ints


class LastLines:
    """Known lines come a chunk at a time, the others one by one.

    In a log of many processes most have a line in every chunk; so there a line is taken out of a chunk only when the
    next one has none of its process.
    """

    def __init__(self, limits: Limits) -> None:
        self.found: dict[str, RawLine] = {}
        self._limits = limits
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._streams: list[int] = []
        self._repeats: list[int] = []
        self._before: _Chunk | None = None

    def set(self, process: str, line: RawLine) -> None:
        """A line of a process, if it is its last one so far."""
        before = self.found.get(process)
        if before is None:
            if len(self.found) < self._limits.processes:
                self.found[process] = line
        elif before.number <= line.number:
            self.found[process] = line

    def add(self, lines: Lines, builders: list[Builder], repeats: list[str]) -> None:
        """The known lines of a chunk.  `builders`, `repeats`: all streams, and the processes of all repeats."""
        for builder in builders[len(self._streams) :]:
            origin = builder.stream.origin
            self._streams.append(self._number(f"{origin.host}:{origin.pid}"))
        for process in repeats[len(self._repeats) :]:
            self._repeats.append(self._number(process))
        known = np.flatnonzero(lines.targets > APART)
        if not len(known):
            return
        # One table for both: a stream is found from the front, a repeat (-1 - index) from the back.
        table = np.array([*self._streams, *reversed(self._repeats)], np.int64)
        last = np.full(len(self._names) + 1, -1, np.int64)
        last[table[lines.targets[known]]] = known  # of equal indexes the last one stays; -1 is the place for nobody
        last = last[:-1]
        end = int(lines.starts[-1] + lines.lengths[-1])
        before, self._before = self._before, None
        if before is not None:
            self._take(before, np.flatnonzero((before.last >= 0) & (last[: len(before.last)] < 0)))
        if len(last) <= _FEW:
            self._take(_Chunk(lines.buffer, lines, last), np.flatnonzero(last >= 0))
        else:
            self._before = _Chunk(bytes(memoryview(lines.buffer)[:end]), lines, last)

    def _take(self, chunk: _Chunk, processes: Ints) -> None:
        lines = chunk.lines
        for process in processes.tolist():
            index = int(chunk.last[process])
            start = int(lines.starts[index])
            text = bytes(chunk.data[start : start + min(int(lines.lengths[index]), self._limits.clip_bytes)])
            text = text.rstrip(b"\r")
            self.set(
                self._names[process], RawLine(number=lines.base + index + 1, offset=lines.offset + start, text=text)
            )

    def finish(self) -> dict[str, RawLine]:
        """By process; the log has ended."""
        if self._before is not None:
            self._take(self._before, np.flatnonzero(self._before.last >= 0))
            self._before = None
        return self.found

    def _number(self, name: str) -> int:
        """-1 without a name, or when there are too many."""
        if not name or (len(self._numbers) >= self._limits.processes and name not in self._numbers):
            return -1
        number = self._numbers.setdefault(name, len(self._numbers))
        if number == len(self._names):
            self._names.append(name)
        return number
