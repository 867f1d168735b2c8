"""Lines that differ in numbers only are reported once: what one of them is worth, all are.

The numbers are deleted from a whole chunk by two calls of C, and each line that is left is looked up in a table.  No
anchor has a digit, so a form without an anchor has none in any of its lines (a form with one could have a line in which
a digit stands inside the anchor: that line is kept as well).  What a table cannot tell (the form is new
and long, begins a block, may be an operation) goes the usual way, line by line.
"""

from collections.abc import Callable, Collection

import numpy as np
import numpy.typing as npt

from allready.evidence.lines import coll
from allready.evidence.lines.chunk import Lines
from allready.evidence.lines.line_buffer import DIGITS, HEX_NUMBER, process_of, without_numbers
from allready.evidence.lines.literals import distinct
from allready.evidence.lines.marks import WORDS
from allready.evidence.lines.native import Flags, HashTable, Ints, Native, Words
from allready.patterns import compiled_bytes

PLAIN, KEPT, NCCL, MARKED, APART = 0, 1, 2, 4, 8
"""What a form is: of no interest; worth keeping; with NCCL's word; it may say an iteration; the usual way decides."""

MAX_NATIVE_BYTES = 8_192
"""A longer line, or segment, has no form in the compiled scanner."""

NCCL_WORD = b"NCCL "
_MAX_FORMS = 30_000
_MAX_FORM_BYTES = 1_024
_MANY_NEW = 256
"""New forms in a chunk: of so many, those that come once, as a sample of text does, cost more to learn than to read."""
_MAX_PROCESSES = 20_000
_MAX_PAUSE = 64
_FRONT_BYTES = 32
_FEW_FRONTS = 64
_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], np.uint64)

_PROCESS = (
    rb"(?m)^(?:[^\n]*? )??([A-Za-z0-9_.\-]{1,255}:\d{1,10}):\d{1,10} "
    rb"(?:\[-?\d{1,4}\] )?(?:[^\s:]{1,200}:\d{1,7} )?NCCL [^\n]*"
)
"""A line of NCCL's, whole, and the process that it names; at most one match in each line."""

Kinds = npt.NDArray[np.uint8]
Finder = Callable[[bytes, int], Ints]
"""From bytes and their number to the places of literals."""


class Forms:
    """The forms of one log's lines.

    `anchors`, `blocks`: find the literals that make a line worth keeping, or begin a block.
    """

    def __init__(self, anchors: Finder, blocks: Finder, native: Native | None = None) -> None:
        self._anchors, self._blocks, self._native = anchors, blocks, native
        self._hashes: HashTable | None = None
        self._once: HashTable | None = None  # forms of which one line was seen, among many others
        self._process_hashes: HashTable | None = None
        self._numbers: dict[bytes, int] = {b"\0unknown": 0}
        self.forms: list[bytes] = 3 * [b""]  # the first one stands for lines that have none, two for segments
        self.kinds: Kinds = np.array([APART, PLAIN, MARKED], np.uint8)
        self._pause = 0  # chunks that are not looked up
        self._next_pause = 1
        self._processes: dict[bytes, int] = {}
        self._fronts: dict[int, int] = {}
        self.processes: list[str] = [""]

    def of(self, lines: Lines, at: Ints) -> Ints | None:
        """The number of the form of each line `at`; None where forms do not come again."""
        if self._pause:
            self._pause -= 1
            return None
        if self._native is not None:
            return self._of_lines(self._native, lines, at)
        data, size, _ = lines.spliced(at)
        return self._of_text(data, size, len(at))

    def _of_lines(self, native: Native, lines: Lines, at: Ints) -> Ints:
        """By the compiled scanner, which knows forms by their hashes."""
        if self._hashes is None:
            self._hashes = native.table()
        lines_of = (lines.rows.bytes, lines.starts, lines.trimmed)
        found = native.forms(*lines_of, at, self._hashes, self.kinds)
        if found.num_new:
            unknown = np.flatnonzero(found.numbers < 0)
            is_new = unknown[found.hashes[unknown] != 0]
            hashes = np.concatenate((found.hashes[is_new], found.segment_hashes))
            places = np.concatenate((lines.starts[at[is_new]], found.places))
            lengths = np.concatenate((lines.trimmed[at[is_new]], found.lengths))
            new, firsts, counts = np.unique(hashes, return_index=True, return_counts=True)
            num_untold = found.num_new_segments - len(found.segment_hashes)
            are_most = self._see_new(len(new) + num_untold, len(at) + found.num_segments)
            if are_most or len(new) > _MANY_NEW:
                again = self._come_again(native, new, counts)
                new, firsts = new[again], firsts[again]
            spans = zip(places[firsts].tolist(), lengths[firsts].tolist(), strict=True)
            texts = [without_numbers(bytes(lines.buffer[start : start + length])) for start, length in spans]
            self._learn(texts)
            if len(new) and len(self._hashes) + len(new) <= 2 * _MAX_FORMS:
                self._hashes.add(new, np.array([self._numbers.get(text, 0) for text in texts], np.int64))
                found.numbers[unknown] = native.forms(*lines_of, at[unknown], self._hashes, self.kinds).numbers
        return np.maximum(found.numbers, 0)

    def _come_again(self, native: Native, new: Words, counts: Ints) -> Flags:
        """Which of many new forms are worth learning: those of which this is not the only line so far."""
        if self._once is None or len(self._once) + len(new) > 2 * _MAX_FORMS:
            self._once = native.table()
        again: Flags = (counts > 1) | (self._once.find(new) >= 0)
        seen_once = new[~again]
        self._once.add(seen_once, np.zeros(len(seen_once), np.int64))
        return again

    def _of_text(self, data: bytes | bytearray, size: int, num_lines: int) -> Ints:
        """By deleting the numbers of all lines together."""
        text = bytes(memoryview(data)[:size])
        if b"0x" in text:
            text = compiled_bytes(HEX_NUMBER).sub(b"", text)
        lines = text.translate(None, DIGITS).split(b"\n")
        lines.pop()
        if b"\r\n" in text:
            lines = [line.rstrip(b"\r") for line in lines]
        found = list(map(self._numbers.get, lines))
        if None in found:
            new = dict.fromkeys(line for line, number in zip(lines, found, strict=True) if number is None)
            self._learn(new)
            self._see_new(len(new), num_lines)
            found = list(map(self._numbers.get, lines))
        return np.array([0 if number is None else number for number in found] if None in found else found, np.int64)

    def _see_new(self, num_new: int, num_lines: int) -> bool:
        """Do not look for a while where most forms are new; whether they are."""
        are_most = 2 * num_new > num_lines
        if are_most:
            self._pause = self._next_pause
            self._next_pause = min(2 * self._next_pause, _MAX_PAUSE)
        return are_most

    def _learn(self, new: Collection[bytes]) -> None:
        """Take new forms in, as many as there is room for."""
        if len(self.forms) + len(new) > _MAX_FORMS:
            return
        some = [form for form in new if len(form) <= _MAX_FORM_BYTES and b"\r" not in form]
        if not some:
            return
        data = b"".join([form + b"\n" for form in some])
        starts = np.cumsum([0, *(len(form) + 1 for form in some[:-1])])
        kinds = np.zeros(len(some), np.uint8)
        for finder, kind in ((self._anchors, KEPT), (self._blocks, APART)):
            places = finder(data + b"\0" * 64, len(data))
            kinds[distinct(np.searchsorted(starts, places, "right") - 1)] |= kind
        for at, form in enumerate(some):
            if NCCL_WORD in form:
                kinds[at] |= KEPT | NCCL
            if coll.MARKER[:5] in form:
                kinds[at] |= APART
            small = form.lower()
            if any(word in small for word in WORDS):
                kinds[at] |= MARKED
            self._numbers[form] = len(self.forms)
            self.forms.append(form)
        self.kinds = np.concatenate((self.kinds, kinds))

    def processes_of(self, lines: Lines, at: Ints) -> Ints:
        """The number of the process that each of NCCL's lines names; 0 where it names none."""
        if len(self.processes) > _MAX_PROCESSES:
            self._processes.clear()
            self._fronts.clear()
            self._process_hashes = None
            self.processes = [""]
        if self._native is not None:
            return self._processes_in(self._native, lines, at)
        fronts = lines.rows.take(lines.starts[at], _FRONT_BYTES) @ _MIX
        some, firsts, which = np.unique(fronts, return_index=True, return_inverse=True)
        if len(some) <= max(_FEW_FRONTS, len(at) // 8):
            order = np.argsort(firsts)
            fronts_and_lines = zip(some[order].tolist(), at[firsts[order]].tolist(), strict=True)
            numbers = [self._by_front(front, lines, index) for front, index in fronts_and_lines]
            if None not in numbers:
                return np.array(numbers, np.int64)[np.argsort(order)][which]
        data, size, _ = lines.spliced(at)
        return self._by_text(bytes(memoryview(data)[:size]), len(at))

    def _processes_in(self, native: Native, lines: Lines, at: Ints) -> Ints:
        """By the compiled scanner."""
        if self._process_hashes is None:
            self._process_hashes = native.table()
        some = (lines.rows.bytes, lines.starts, lines.lengths, at, self._process_hashes)
        numbers, hashes, num_new = native.processes(*some)
        if num_new:
            is_new = np.flatnonzero(numbers < 0)
            new, firsts, which = np.unique(hashes[is_new], return_index=True, return_inverse=True)
            order = np.argsort(firsts)  # processes are numbered as they come
            names = [process_of(lines.text(index)) for index in at[is_new[firsts[order]]].tolist()]
            given = np.empty(len(new), np.int64)
            given[order] = [0 if name is None else self._number(name[0].encode()) for name in names]
            self._process_hashes.add(new, given)
            numbers[is_new] = given[which]
        return numbers

    def _by_front(self, front: int, lines: Lines, index: int) -> int | None:
        """The process of the lines with these first bytes; None where they do not tell it."""
        number = self._fronts.get(front)
        if number is None:
            text = lines.text(index)
            found = process_of(text)
            if found is None or text.find(b" ", found[1][1]) not in range(_FRONT_BYTES):
                return None
            number = self._fronts[front] = self._number(found[0].encode())
        return number

    def _number(self, name: bytes) -> int:
        number = self._processes.get(name)
        if number is None:
            number = self._processes[name] = len(self.processes) if name else 0
            if name:
                self.processes.append(name.decode("ascii"))
        return number

    def _by_text(self, data: bytes, num_lines: int) -> Ints:
        names = compiled_bytes(_PROCESS).findall(data)
        if len(names) != num_lines:
            texts = data.split(b"\n")[:num_lines]
            names = [name[0].encode() if (name := process_of(text)) is not None else b"" for text in texts]
        return np.array([*map(self._number, names)], np.int64)
