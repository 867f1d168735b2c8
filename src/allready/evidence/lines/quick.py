"""Keeps or counts the lines of known forms of a chunk, all together (`forms`); the scanner reads the others."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from allready.evidence.lines import forms
from allready.evidence.lines.chunk import Lines
from allready.evidence.lines.forms import MAX_NATIVE_BYTES, Forms
from allready.evidence.lines.last import LastLines
from allready.evidence.lines.line_buffer import LINE_BYTES, LineBlock, LineBuffer
from allready.evidence.lines.literals import NOTHING
from allready.evidence.lines.model import LineLimits, RawLine
from allready.evidence.lines.native import Ints, Native

_FEW, _FEW_BYTES = 256, 65_536
"""Fewer lines in a chunk, with fewer bytes, are not worth it."""


_MAX_PAIRS = 1 << 23
"""Of a process and a form, in a table: more are looked up one by one."""


class Sorted(Struct):
    """The lines of a chunk by their forms, as indexes: those for the usual way, those of interest,
    and those that may say an iteration; `kept`: what is to be put among the lines that the usual way keeps."""

    usual: Ints
    marked: Ints = NOTHING
    interesting: Ints = NOTHING
    kept_at: Sequence[int] = ()
    kept: LineBlock | None = None


class QuickLines:
    """For one log."""

    def __init__(
        self, known: Forms, keeper: LineBuffer, last: LastLines, limits: LineLimits, native: Native | None = None
    ) -> None:
        self._forms, self._keeper, self._last, self._limits, self._native = known, keeper, last, limits, native
        self._indexes = np.empty((0, 0), np.int32)  # by process and form
        self._numbered = known.processes

    def sort_out(self, lines: Lines, left: Ints) -> Sorted:
        """Take what is known of the lines `left`."""
        if len(left) < _FEW and (self._native is None or int(lines.lengths[left].sum()) < _FEW_BYTES):
            return Sorted(left)
        numbers = self._forms.of(lines, left)
        if numbers is None:
            return Sorted(left)
        kinds = self._forms.kinds[numbers]
        is_kept = (kinds & forms.KEPT) != 0
        is_usual = (kinds & forms.APART) != 0
        is_usual |= is_kept & (lines.lengths[left] >= self._limits.clip_bytes)
        is_kept &= ~is_usual
        at = np.flatnonzero(is_kept)
        kept_at, kept = self._take(lines, left[at], numbers[at], kinds[at]) if len(at) else ([], None)
        marked = left[~is_usual & ((kinds & forms.MARKED) != 0)]
        return Sorted(left[is_usual], marked, left[at], kept_at, kept)

    def is_plain(self, line: Lines) -> bool:
        """Whether all segments of a very long line, or of a part of one, are of no interest."""
        if (
            self._native is None
            or line.buffer.find(b"\r", int(line.starts[0]), int(line.starts[0]) + MAX_NATIVE_BYTES) < 0
        ):
            return False
        numbers = self._forms.of(line, np.zeros(1, np.int64))
        return numbers is not None and int(self._forms.kinds[numbers[0]]) == forms.PLAIN

    def _take(self, lines: Lines, at: Ints, numbers: Ints, kinds: npt.NDArray[np.uint8]) -> tuple[list[int], LineBlock]:
        """Count the lines `at` by form and process; those for which there is room, in order."""
        processes = np.zeros(len(at), np.int64)
        nccl = np.flatnonzero((kinds & forms.NCCL) != 0)
        if len(nccl):
            processes[nccl] = self._forms.processes_of(lines, at[nccl])
            self._set_last(lines, at[nccl], processes[nccl])
        keys = processes * len(self._forms.forms) + numbers
        if self._native is not None:
            order, begins = self._native.groups(keys)
            in_order = keys[order]
        else:
            order = np.argsort(keys, kind="stable")
            in_order = keys[order]
            begins = np.flatnonzero(np.concatenate(([True], in_order[1:] != in_order[:-1])))
        counts = np.diff(begins, append=len(keys))
        last = at[order[np.append(begins[1:], len(keys)) - 1]]
        rooms = self._rooms(lines, in_order[begins], counts, at[order], begins, last)
        kept = at
        if (rooms < counts).any():
            place = np.arange(len(keys)) - np.repeat(begins, counts)  # of each among those of its pair
            kept = np.sort(at[order[place < np.repeat(rooms, counts)]])
        return kept.tolist(), _block(lines, kept)

    def _rooms(self, lines: Lines, keys: Ints, counts: Ints, in_order: Ints, begins: Ints, last: Ints) -> Ints:
        """Count the pairs of a process and a form; of how many lines of each there is room for the first.

        `in_order`: the lines, pair by pair; `begins`: where each pair begins there; `last`: the last line of each.
        """
        processes, numbers = np.divmod(keys, len(self._forms.forms))
        indexes = self._indexes_of(processes, numbers)
        rooms = np.array(self._keeper.rooms(indexes.tolist(), counts.tolist()), np.int64)
        full = np.flatnonzero(rooms < counts)
        for pair in full.tolist():
            if not self._keeper.has_repeat(int(indexes[pair])):
                first = raw(lines, int(in_order[begins[pair] + rooms[pair]]))
                self._keeper.repeat(int(indexes[pair]), self._forms.processes[int(processes[pair])], first)
        ends = last[full]
        starts = lines.starts[ends]
        more = (counts - rooms)[full]
        columns = (indexes[full], more, ends + lines.base + 1, starts, starts + lines.trimmed[ends])
        rows = zip(*(column.tolist() for column in columns), strict=True)
        self._keeper.count_all(rows, lines.buffer, lines.offset)
        return rooms

    def _indexes_of(self, processes: Ints, numbers: Ints) -> Ints:
        """What the keeper counts each pair by."""
        if self._forms.processes is not self._numbered:  # their numbers were given anew
            self._numbered, self._indexes = self._forms.processes, np.empty((0, 0), np.int32)
        shape = len(self._forms.processes), len(self._forms.forms)
        have = self._indexes.shape
        if (shape[0] > have[0] or shape[1] > have[1]) and 4 * shape[0] * shape[1] <= _MAX_PAIRS:
            more = np.full((2 * shape[0], 2 * shape[1]), -1, np.int32)
            more[: have[0], : have[1]] = self._indexes
            self._indexes = more
        found = np.full(len(processes), -1, np.int64)
        is_inside = (processes < self._indexes.shape[0]) & (numbers < self._indexes.shape[1])
        inside = np.flatnonzero(is_inside)
        found[inside] = self._indexes[processes[inside], numbers[inside]]
        new = np.flatnonzero(found < 0)
        if len(new):
            names, known = self._forms.processes, self._forms.forms
            pairs = zip(processes[new].tolist(), numbers[new].tolist(), strict=True)
            found[new] = self._keeper.indexes([(names[process], known[number]) for process, number in pairs])
            new = new[is_inside[new]]
            self._indexes[processes[new], numbers[new]] = found[new]
        return found

    def _set_last(self, lines: Lines, at: Ints, processes: Ints) -> None:
        last = np.zeros(len(self._forms.processes), np.int64)
        last[processes] = at  # of equal indexes the last one stays
        for process in np.unique(processes).tolist():
            if process:
                self._last.set(self._forms.processes[process], raw(lines, int(last[process])))


def raw(lines: Lines, index: int) -> RawLine:
    """A line as an object."""
    start = int(lines.starts[index])
    text = bytes(lines.buffer[start : start + int(lines.trimmed[index])])
    return RawLine(number=lines.base + index + 1, offset=lines.offset + start, text=text)


class _Unread(LineBlock):
    """Lines as their place in bytes that have no others; most are never read, because later ones take their place."""

    def __init__(self, data: bytes | bytearray, numbers: Ints, offsets: Ints, places: Ints, lengths: Ints) -> None:
        """`offsets`: in the log; `places`: in the data."""
        super().__init__((), int(lengths.sum()) + LINE_BYTES * len(lengths))
        self._data, self._numbers, self._offsets, self._places, self._lengths = data, numbers, offsets, places, lengths

    def __len__(self) -> int:
        return len(self._numbers)

    def lines(self) -> Iterable[RawLine]:
        columns = (self._numbers, self._offsets, self._places, self._lengths)
        return [
            RawLine(number=number, offset=offset, text=bytes(self._data[place : place + length]))
            for number, offset, place, length in zip(*(column.tolist() for column in columns), strict=True)
        ]

    def sizes(self) -> Ints:
        return self._lengths + LINE_BYTES

    def part(self, first: int, end: int) -> LineBlock:
        some = slice(first, end)
        return _Unread(self._data, self._numbers[some], self._offsets[some], self._places[some], self._lengths[some])


def _block(lines: Lines, at: Ints) -> LineBlock:
    """These lines, read when they are asked for."""
    if not len(at):
        return LineBlock((), 0)
    data, size, places = lines.spliced(at)
    if data is lines.buffer:  # which the next chunk overwrites
        data = bytes(memoryview(data)[:size])
    return _Unread(data, lines.base + at + 1, lines.offset + lines.starts[at], places, lines.trimmed[at])
