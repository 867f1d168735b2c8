"""The last line of every process, operations and repeated lines included."""

import numpy as np

from allready.evidence.lines.chunk import APART, Lines
from allready.evidence.lines.model import Limits, RawLine
from allready.evidence.lines.streams import Builder


class LastLines:
    """Known lines come a chunk at a time, the others one by one."""

    def __init__(self, limits: Limits) -> None:
        self.found: dict[str, RawLine] = {}
        self._limits = limits
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._streams: list[int] = []
        self._repeats: list[int] = []

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
        last[table[lines.targets[known]]] = known  # of equal indexes the last one stays; -1 is the place of no process
        for number in np.flatnonzero(last[:-1] >= 0).tolist():
            index = int(last[number])
            text = lines.text(index, self._limits.clip_bytes).rstrip(b"\r")
            offset = lines.offset + int(lines.starts[index])
            self.set(self._names[number], RawLine(number=lines.base + index + 1, offset=offset, text=text))

    def _number(self, name: str) -> int:
        """-1 without a name, or when there are too many."""
        if not name or (len(self._numbers) >= self._limits.processes and name not in self._numbers):
            return -1
        number = self._numbers.setdefault(name, len(self._numbers))
        if number == len(self._names):
            self._names.append(name)
        return number
