"""Keeps or counts the lines of known forms of a chunk, all together (`forms`); the scanner reads the others."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from allready.evidence.lines import forms
from allready.evidence.lines.chunk import Lines
from allready.evidence.lines.forms import Forms
from allready.evidence.lines.last import LastLines
from allready.evidence.lines.line_buffer import LINE_BYTES, LineBlock, LineBuffer
from allready.evidence.lines.literals import Ints
from allready.evidence.lines.model import Limits, RawLine
from allready.evidence.lines.native import Native

_MAX_SPREAD = 3
_FEW = 256
"""Fewer lines in a chunk are not worth it."""


_MAX_PAIRS = 1 << 23
"""Of a process and a form, in a table: more are looked up one by one."""

_NOTHING: Ints = np.empty(0, np.int64)


class Sorted(Struct):
    """The lines of a chunk by their forms, as indexes: those for the usual way, those of interest,
    and those that may say an iteration; `kept`: what is to be put among the lines that the usual way keeps."""

    usual: Ints
    marked: Ints = _NOTHING
    interesting: Ints = _NOTHING
    kept_at: Sequence[int] = ()
    kept: LineBlock | None = None


class QuickLines:
    """For one log."""

    def __init__(
        self, known: Forms, keeper: LineBuffer, last: LastLines, limits: Limits, native: Native | None = None
    ) -> None:
        self._forms, self._keeper, self._last, self._limits, self._native = known, keeper, last, limits, native
        self._repeats = np.empty((0, 0), np.int32)  # by process and form
        self._numbered = known.processes

    def sort_out(self, lines: Lines, left: Ints) -> Sorted:
        """Take what is known of the lines `left`."""
        if len(left) < _FEW:
            return Sorted(left)
        numbers = self._forms.of(lines, left)
        if numbers is None:
            return Sorted(left)
        kinds = self._forms.kinds[numbers]
        is_usual = (kinds & forms.APART) != 0
        is_usual |= lines.lengths[left] >= self._limits.clip_bytes
        is_kept = ~is_usual & ((kinds & forms.KEPT) != 0)
        at = np.flatnonzero(is_kept)
        kept_at, kept = self._take(lines, left[at], numbers[at], kinds[at]) if len(at) else ([], None)
        marked = left[~is_usual & ((kinds & forms.MARKED) != 0)]
        return Sorted(left[is_usual], marked, left[at], kept_at, kept)

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
        place = np.arange(len(keys)) - np.repeat(begins, counts)  # of each among those of its pair
        kept = np.sort(at[order[place < np.repeat(rooms, counts)]])
        return kept.tolist(), _block(lines, kept)

    def _rooms(self, lines: Lines, keys: Ints, counts: Ints, in_order: Ints, begins: Ints, last: Ints) -> Ints:
        """Count the pairs of a process and a form; of how many lines of each there is room for the first.

        `in_order`: the lines, pair by pair; `begins`: where each pair begins there; `last`: the last line of each.
        """
        names, known = self._forms.processes, self._forms.forms
        processes, numbers = np.divmod(keys, len(known))
        repeats = self._repeats_of(processes, numbers)
        full = np.flatnonzero(repeats >= 0)  # what was counted once is counted from then on
        ends = last[full]
        starts = lines.starts[ends]
        columns = (repeats[full], counts[full], ends + lines.base + 1, starts, starts + lines.lengths[ends])
        rows = zip(*(column.tolist() for column in columns), strict=True)
        self._keeper.count_all(rows, lines.buffer, lines.offset)
        rooms = np.zeros(len(keys), np.int64)
        for pair in np.flatnonzero(repeats < 0).tolist():
            process, number, num = int(processes[pair]), int(numbers[pair]), int(counts[pair])
            name, form = names[process], known[number]
            rooms[pair] = room = self._keeper.room(name, form, num)
            if room < num:
                first = None if self._keeper.has_repeat(name, form) else raw(lines, int(in_order[begins[pair] + room]))
                repeat = self._keeper.count_more(name, form, num - room, first, raw(lines, int(last[pair])))
                if process < len(self._repeats) and number < self._repeats.shape[1]:
                    self._repeats[process, number] = repeat
        return rooms

    def _repeats_of(self, processes: Ints, numbers: Ints) -> Ints:
        """The repeat that each pair goes into, -1 where it is not known."""
        if self._forms.processes is not self._numbered:  # their numbers were given anew
            self._numbered, self._repeats = self._forms.processes, np.empty((0, 0), np.int32)
        shape = len(self._forms.processes), len(self._forms.forms)
        have = self._repeats.shape
        if (shape[0] > have[0] or shape[1] > have[1]) and 4 * shape[0] * shape[1] <= _MAX_PAIRS:
            more = np.full((2 * shape[0], 2 * shape[1]), -1, np.int32)
            more[: have[0], : have[1]] = self._repeats
            self._repeats = more
        found = np.full(len(processes), -1, np.int64)
        inside = np.flatnonzero((processes < self._repeats.shape[0]) & (numbers < self._repeats.shape[1]))
        found[inside] = self._repeats[processes[inside], numbers[inside]]
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
    text = bytes(lines.buffer[start : start + int(lines.lengths[index])])
    return RawLine(number=lines.base + index + 1, offset=lines.offset + start, text=text)


class _Unread(LineBlock):
    """Lines as their place in a piece of the log; most are never read, because later ones take their place."""

    def __init__(self, data: bytes, offset: int, numbers: Ints, starts: Ints, lengths: Ints) -> None:
        """`offset`: of the piece in the log; `starts`: in the piece."""
        super().__init__((), int(lengths.sum()) + LINE_BYTES * len(lengths))
        self._data, self._offset, self._numbers, self._starts, self._lengths = data, offset, numbers, starts, lengths

    def __len__(self) -> int:
        return len(self._numbers)

    def lines(self) -> Iterable[RawLine]:
        rows = zip(self._numbers.tolist(), self._starts.tolist(), self._lengths.tolist(), strict=True)
        return [
            RawLine(number=number, offset=self._offset + start, text=self._data[start : start + length])
            for number, start, length in rows
        ]

    def part(self, first: int, end: int) -> LineBlock:
        some = slice(first, end)
        return _Unread(self._data, self._offset, self._numbers[some], self._starts[some], self._lengths[some])


def _block(lines: Lines, at: Ints) -> LineBlock:
    """These lines, read when they are asked for where what lies between takes little memory."""
    if not len(at):
        return LineBlock((), 0)
    starts, lengths = lines.starts[at], lines.lengths[at]
    begin, end = int(starts[0]), int(starts[-1] + lengths[-1])
    block = _Unread(bytes(lines.buffer[begin:end]), lines.offset + begin, at + lines.base + 1, starts - begin, lengths)
    is_dense = end - begin < _MAX_SPREAD * block.num_bytes
    return block if is_dense else LineBlock(list(block.lines()), block.num_bytes)
