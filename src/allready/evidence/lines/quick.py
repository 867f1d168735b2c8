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


_NOT_ASKED = -2


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
        self._numbered = known.processes
        self._process_numbers = self._last_numbers = self._form_numbers = NOTHING

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
        self._see_processes()
        if len(nccl):
            self._set_last(lines, at[nccl], processes[nccl])
        processes, numbers = self._process_numbers[processes], self._form_numbers_of(numbers)
        num_forms = len(self._keeper.counts.forms) + 1  # one more for those that have no number
        keys = (processes + 1) * num_forms + numbers + 1
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
        processes, numbers = np.divmod(keys, len(self._keeper.counts.forms) + 1)
        order = np.argsort(in_order[begins])  # whether or not they come in that of their first lines
        indexes, rooms = np.empty((2, len(keys)), np.int64)
        indexes[order], rooms[order] = self._keeper.rooms(processes[order] - 1, numbers[order] - 1, counts[order])
        names, full = self._keeper.counts.process_names, np.flatnonzero(rooms < counts)
        for pair in full.tolist():
            if not self._keeper.has_repeat(int(indexes[pair])):
                first = raw(lines, int(in_order[begins[pair] + rooms[pair]]))
                self._keeper.repeat(int(indexes[pair]), names[int(processes[pair]) - 1], first)
        ends = last[full]
        starts = lines.starts[ends]
        more = (counts - rooms)[full]
        columns = (indexes[full], more, ends + lines.base + 1, starts, starts + lines.trimmed[ends])
        rows = zip(*(column.tolist() for column in columns), strict=True)
        self._keeper.count_all(rows, lines.buffer, lines.offset)
        return rooms

    def _see_processes(self) -> None:
        """Ask what new processes are known by."""
        names = self._forms.processes
        if names is not self._numbered:  # their numbers were given anew
            self._numbered, self._process_numbers, self._last_numbers = names, NOTHING, NOTHING
        new = names[len(self._process_numbers) :]
        if new:
            counted = np.array([self._keeper.counts.process(name) for name in new], np.int64)
            last = np.array([self._last.number(name) for name in new], np.int64)
            self._process_numbers = np.concatenate((self._process_numbers, counted))
            self._last_numbers = np.concatenate((self._last_numbers, last))

    def _form_numbers_of(self, forms: Ints) -> Ints:
        """What the keeper's counts know each form by, -1 where there are too many."""
        more = len(self._forms.forms) - len(self._form_numbers)
        if more:
            self._form_numbers = np.concatenate((self._form_numbers, np.full(more, _NOT_ASKED, np.int64)))
        for form in np.unique(forms[self._form_numbers[forms] == _NOT_ASKED]).tolist():
            self._form_numbers[form] = self._keeper.counts.form(self._forms.forms[form])
        return self._form_numbers[forms]

    def _set_last(self, lines: Lines, at: Ints, processes: Ints) -> None:
        last = np.full(len(self._numbered), -1, np.int64)
        last[processes] = at  # of equal indexes the last one stays
        some = np.flatnonzero((last >= 0) & (self._last_numbers >= 0))
        if len(some):
            self._last.add_last(lines, self._last_numbers[some], last[some])


def raw(lines: Lines, index: int) -> RawLine:
    """A line as an object."""
    start = int(lines.starts[index])
    text = bytes(lines.buffer[start : start + int(lines.trimmed[index])])
    return RawLine(number=lines.base + index + 1, offset=lines.offset + start, text=text)


class _Unread(LineBlock):
    """Lines as their place in bytes that have no others; most are never read, because later ones take their place."""

    def __init__(self, data: bytes, numbers: Ints, offsets: Ints, places: Ints, lengths: Ints) -> None:
        """`offsets`: in the log; `places`: in the data."""
        super().__init__((), int(lengths.sum()) + LINE_BYTES * len(lengths))
        self._data, self._numbers, self._offsets, self._places, self._lengths = data, numbers, offsets, places, lengths

    def __len__(self) -> int:
        return len(self._numbers)

    def lines(self) -> Iterable[RawLine]:
        columns = (self._numbers, self._offsets, self._places, self._lengths)
        return [
            RawLine(number=number, offset=offset, text=self._data[place : place + length])
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
    if not isinstance(data, bytes):  # the next chunk overwrites the buffer
        data = bytes(memoryview(data)[:size])
    return _Unread(data, lines.base + at + 1, lines.offset + lines.starts[at], places, lines.trimmed[at])
