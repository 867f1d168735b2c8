"""The lines of one chunk, by number."""

import functools

import numpy as np
import numpy.typing as npt

from allready.evidence.lines.marks import PADDING
from allready.evidence.lines.native import Flags, Floats, Ints, Native
from allready.evidence.lines.templates import Rows

_PADDING = b"\n" * PADDING
UNKNOWN = -(2**31)
APART = UNKNOWN + 1
"""Targets: a line that is not known; an operation for which there is no stream."""


class Lines:
    """Line i begins at `starts[i]` of the buffer and has `lengths[i]` bytes, its newline left out.

    `base` lines and `offset` bytes come before the chunk.  `targets`: what each line is: a stream (>= 0), a repeat
    (-1 - its index), UNKNOWN or APART.  `ids`: its template, -1 without one.  Of operations: `codes`, `times` (NaN
    where they say none), and `numbers` of elements where the template leaves them open (-1 elsewhere).
    """

    def __init__(
        self,
        buffer: bytearray,
        rows: Rows,
        base: int,
        offset: int,
        starts: Ints,
        lengths: Ints,
        native: Native | None = None,
    ) -> None:
        self.buffer, self.rows, self.base, self.offset = buffer, rows, base, offset
        self.native = native
        self.starts, self.lengths = starts, lengths
        num = len(starts)
        self.targets: npt.NDArray[np.int32] = np.full(num, UNKNOWN, np.int32)
        self.ids: Ints = np.full(num, -1, np.int64)
        self.codes: npt.NDArray[np.uint16] = np.zeros(num, np.uint16)
        self.times: Floats = np.full(num, np.nan)
        self.numbers: Ints = np.full(num, -1, np.int64)
        self.is_blank: Flags = lengths == 0
        short = np.flatnonzero(lengths == 1)
        self.is_blank[short] = rows.bytes[starts[short]] == 13

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def is_coll(self) -> Flags:
        """Which lines are operations."""
        found: Flags = (self.targets >= 0) | (self.targets == APART)
        return found

    @functools.cached_property
    def trimmed(self) -> Ints:
        """The lengths without the carriage returns at the ends of lines."""
        if not len(self) or self.buffer.find(b"\r", int(self.starts[0]), int(self.starts[-1] + self.lengths[-1])) < 0:
            return self.lengths
        some = self._with_return(self.lengths, np.flatnonzero(self.lengths))
        if not len(some):
            return self.lengths
        lengths = self.lengths.copy()
        lengths[some] -= 1
        for index in self._with_return(lengths, some[lengths[some] > 0]).tolist():  # hardly any has two
            lengths[index] = len(self.text(index).rstrip(b"\r"))
        return lengths

    def _with_return(self, lengths: Ints, at: Ints) -> Ints:
        """Those of the lines `at` of which the last byte is a carriage return."""
        found: Ints = at[self.rows.bytes[self.starts[at] + lengths[at] - 1] == 13]
        return found

    def text(self, index: int, most: int | None = None) -> bytes:
        """The line's bytes, at most so many."""
        start, length = int(self.starts[index]), int(self.lengths[index])
        return bytes(self.buffer[start : start + (length if most is None else min(length, most))])

    def spliced(self, indexes: Ints) -> tuple[bytes | bytearray, int, Ints]:
        """Only these lines, in ascending order, with their newlines; how many bytes, and where each line begins.

        The buffer itself is given back where nothing has to be left out.  The data goes on with bytes of no meaning.
        """
        if not len(indexes):
            return b"", 0, indexes
        if len(indexes) == len(self.starts) and not self.starts[0]:
            return self.buffer, int(self.starts[-1] + self.lengths[-1]) + 1, self.starts
        sizes = self.lengths[indexes] + 1
        if self.native is not None:
            size = int(sizes.sum())
            out = bytearray(size) + _PADDING
            return out, size, self.native.splice(self.rows.bytes, self.starts, self.lengths, indexes, out)
        borders = np.flatnonzero(np.diff(indexes) != 1) + 1
        firsts = self.starts[indexes[np.concatenate(([0], borders))]].tolist()
        lasts = indexes[np.concatenate((borders - 1, [len(indexes) - 1]))]
        ends = (self.starts[lasts] + self.lengths[lasts] + 1).tolist()
        with memoryview(self.buffer) as view:
            data = b"".join([*(view[a:b] for a, b in zip(firsts, ends, strict=True)), _PADDING])
        return data, len(data) - len(_PADDING), np.cumsum(sizes) - sizes
