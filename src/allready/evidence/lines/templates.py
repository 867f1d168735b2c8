"""Lines that are known, recognised by the thousand.

Lines of equal length are put below each other as rows of 64-bit words.  A `Layout` says which bytes of such a row
change from line to line; the others are hashed, and a hash that is known stands for one template: one operation of one
communicator of one process, or one repeated line.  A row whose hash is unknown is parsed by itself.

The hash has 64 bits with multipliers drawn at random in every process.  The words are folded before they are
multiplied, so that two lines that differ anywhere fall together with a probability below 2**-48.
"""

import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from allready.evidence.lines.coll import MAX_BYTES
from allready.evidence.lines.native import Floats, HashTable, Ints, LayoutPlace, Native, Words

Bytes = npt.NDArray[np.uint8]
Codes = npt.NDArray[np.uint16]

MAX_LAYOUTS = 24  # of one length; more are forgotten, the least used first
_MAX_WORDS = (MAX_BYTES + 7) // 8
_BLOCK_WORDS = 32_768
_SHIFT = np.uint64(0x10)
_CLASS = np.uint64(0xC0)
_FOLDS = (np.uint64(32), np.uint64(16))
DIGIT, HEX = 0, 1
_MAX_USES = 32  # of the layouts in one order
PENDING = 0xFFFF  # the code of an operation that has none yet; no stream has so many
_ALLOWED = np.zeros((2, 256), np.bool_)
_ALLOWED[DIGIT, list(b"0123456789")] = True
_ALLOWED[HEX, list(b"0123456789abcdef")] = True


class Geometry(Struct, frozen=True, eq=False):
    """Where the lines of one form may differ.

    `checked`: columns that must be digits (or hexadecimal), for lines whose changing bytes decide what they are.
    `number`: columns of a number that is read, where lines with any number are one template.  `date`: column of a full
    date, and columns of its fraction's digits.  `counter`: column of an operation's counter, -1 in other lines.
    """

    length: int
    shift: Words
    mask: Words
    checked: npt.NDArray[np.intp]
    classes: npt.NDArray[np.intp]
    date: tuple[int, int, int] | None
    number: tuple[int, int] | None
    counter: int


class LineLayout(Struct, eq=False):
    """The templates of one geometry; hashes in order."""

    geometry: Geometry
    hashes: Words = field(default_factory=lambda: np.empty(0, np.uint64))
    ids: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    hits: int = 0
    table: HashTable | None = None  # the hashes and ids once more, for the compiled scanner
    _place: LayoutPlace | None = None

    def place(self) -> LayoutPlace:
        """The layout as `native.c` takes it, made anew where its table was."""
        if self._place is None:
            self._place = self._new_place()
        return self._place

    def forget_place(self) -> None:
        """Its table was changed."""
        self._place = None

    def _new_place(self) -> LayoutPlace:
        form, table = self.geometry, self.table
        assert table is not None
        date = (-1, -1, -1) if form.date is None else form.date
        number = (-1, -1) if form.number is None else form.number
        shift, mask, checked, classes = (x.ctypes.data for x in (form.shift, form.mask, form.checked, form.classes))
        return LayoutPlace(
            shift,
            mask,
            len(form.shift),
            *table.place,
            checked,
            classes,
            len(form.checked),
            *date,
            *number,
            form.counter,
        )


@functools.lru_cache(maxsize=512)
def geometry(
    length: int,
    variable: tuple[tuple[int, int], ...] = (),
    checked: tuple[tuple[int, int, int], ...] = (),
    number: tuple[int, int] | None = None,
    date: tuple[int, int, int] | None = None,
    counter: int = -1,
) -> Geometry:
    """The geometry with these spans.  `checked`: start, end and class."""
    if number is not None:
        checked = (*checked, (*number, DIGIT))
    width = (length + 7) // 8 * 8
    shift, mask = np.zeros(width, np.uint8), np.zeros(width, np.uint8)
    mask[:length] = 0xFF
    for start, end in variable:
        shift[start:end], mask[start:end] = _SHIFT, _CLASS
    for start, end, _ in checked:
        mask[start:end] = 0
    columns = [(c, kind) for start, end, kind in checked for c in range(start, end)]
    return Geometry(
        length,
        shift.view(np.uint64),
        mask.view(np.uint64),
        np.array([c for c, _ in columns], np.intp),
        np.array([k for _, k in columns], np.intp),
        date,
        number,
        counter,
    )


class Rows:
    """A buffer whose lines can be had as rows; it must be longer than its content by `MAX_BYTES`."""

    def __init__(self, buffer: bytearray) -> None:
        self.bytes: Bytes = np.frombuffer(buffer, np.uint8)
        self.buffer = buffer
        self._views: dict[int, npt.NDArray[Any]] = {}

    def take(self, starts: Ints, length: int) -> Words:
        """The lines that begin at `starts`, and some bytes more, in words."""
        width = (length + 7) // 8
        view = self._views.get(width)
        if view is None:
            one = np.frombuffer(self.buffer, f"V{width * 8}", 1)
            view = np.lib.stride_tricks.as_strided(one, (len(self.buffer) - width * 8 + 1,), (1,), writeable=False)
            self._views[width] = view
        return view[starts].view(np.uint64).reshape(-1, width)


def _weights() -> Words:
    # not numpy.random, which would have to be loaded for this alone
    weights: Words = np.frombuffer(os.urandom(8 * _MAX_WORDS), np.uint64) | np.uint64(1)
    return weights


class Workspace:
    """Room to compute in, and multipliers, for one log at a time."""

    def __init__(self) -> None:
        self.words: Words = np.empty(_BLOCK_WORDS, np.uint64)
        self.moved: Words = np.empty(_BLOCK_WORDS, np.uint64)
        self.weights = _weights()


class _LaidOut:
    """All layouts one behind the other as `native.c` takes them, those that are hit most first in their length."""

    def __init__(self, layouts: dict[int, list[LineLayout]]) -> None:
        self.num_uses = 0
        for some in layouts.values():
            some.sort(key=lambda one: -one.hits)
        self._layouts = [layout for length in sorted(layouts) for layout in layouts[length]]
        nums = np.zeros(MAX_BYTES + 2, np.int64)
        for length, some in layouts.items():
            nums[length + 1] = len(some)
        self.firsts: Ints = np.cumsum(nums)
        self.places = (LayoutPlace * len(self._layouts))(*(layout.place() for layout in self._layouts))

    def settle(self) -> None:
        """Add up how often each was hit."""
        for layout, place in zip(self._layouts, self.places, strict=True):
            layout.hits += place.hits


class Templates:
    """All known templates.

    `target[t]` >= 0 is a stream, with the operation `code[t]`, PENDING until one is given out; below 0 it is repeat
    -1 - target.
    """

    def __init__(self, most: int, workspace: Workspace, native: Native | None = None) -> None:
        self.target: npt.NDArray[np.int32] = np.empty(1024, np.int32)
        self.code: npt.NDArray[np.uint16] = np.empty(1024, np.uint16)
        self.generation = 0
        self._most = most
        self._words, self._moved, self._weights = workspace.words, workspace.moved, workspace.weights
        self._native = native
        self._empty()

    def _empty(self) -> None:
        self.generation += 1
        self._layouts: dict[int, list[LineLayout]] = {}
        self._by_geometry: dict[Geometry, LineLayout] = {}
        self._laid: _LaidOut | None = None
        self.num = 0

    def make_room(self) -> bool:
        """Between two chunks: forget everything when there is too much; what is needed is learnt again."""
        if self.num <= self._most:
            return False
        self._weights = _weights()
        self._empty()
        return True

    def layout(self, form: Geometry) -> LineLayout:
        """The layout of a geometry, made where it is new."""
        found = self._by_geometry.get(form)
        if found is not None:
            return found
        layout = LineLayout(form)
        others = self._layouts.setdefault(form.length, [])
        if len(others) >= MAX_LAYOUTS:
            others.sort(key=lambda one: -one.hits)
            del self._by_geometry[others.pop().geometry]
        others.append(layout)
        self._by_geometry[form] = layout
        if self._native is not None:
            layout.table = self._native.table()
        return layout

    def hash(self, layout: LineLayout, rows: Words) -> Words:
        """One number per row.  Some rows at a time, so that what is between stays in the cache."""
        num, width = rows.shape
        hashed = np.empty(num, np.uint64)
        some = _BLOCK_WORDS // width
        for first in range(0, num, some):
            part = rows[first : first + some]
            words = self._words[: part.size].reshape(part.shape)
            moved = self._moved[: part.size].reshape(part.shape)
            np.add(part, layout.geometry.shift, out=words)
            np.bitwise_and(words, layout.geometry.mask, out=words)
            for fold in _FOLDS:
                np.right_shift(words, fold, out=moved)
                np.bitwise_xor(words, moved, out=words)
            np.matmul(words, self._weights[:width], out=hashed[first : first + some])
        return hashed

    def add(self, layout: LineLayout, hashed: Words, target: int | Sequence[int], code: int) -> None:
        """New templates of one layout."""
        end = self.num + len(hashed)
        if end > len(self.target):
            room = max(end, 2 * len(self.target))
            self.target = np.resize(self.target, room)
            self.code = np.resize(self.code, room)
        self.target[self.num : end] = target
        self.code[self.num : end] = code
        hashes, ids = hashed, np.arange(self.num, end)
        if len(layout.hashes):
            hashes, ids = np.concatenate((layout.hashes, hashes)), np.concatenate((layout.ids, ids))
        order = hashes.argsort(kind="stable")
        layout.hashes, layout.ids = hashes[order], ids[order]
        if layout.table is not None:
            layout.table.add(np.maximum(hashed, 1), np.arange(self.num, end))
            layout.forget_place()
            self._settle_laid()
        self.num = end

    def look_up(self, layout: LineLayout, hashed: Words, rows: Words) -> Ints:
        """The template of each row, -1 where unknown."""
        if not len(layout.hashes):
            return np.full(len(hashed), -1, np.int64)
        at = np.searchsorted(layout.hashes, hashed)
        at[at == len(layout.hashes)] = 0
        known = layout.hashes[at] == hashed
        form = layout.geometry
        if len(form.checked) and known.any():
            cells = rows.view(np.uint8).reshape(len(rows), -1)[:, form.checked]
            known &= _ALLOWED[form.classes, cells].all(axis=1)
        return np.where(known, layout.ids[at], -1)

    def match(self, rows: Rows, starts: Ints, lengths: Ints, times: Floats, numbers: Ints) -> Ints:
        """The template of each line, -1 where unknown.

        Fills `times` where a known line has a full date, and `numbers` where its layout says that one is to be read.
        """
        found = np.full(len(starts), -1, np.int64)
        if not self._layouts:
            return found
        if self._native is not None:
            if self._laid is None or self._laid.num_uses >= _MAX_USES:
                self._settle_laid()
                self._laid = _LaidOut(self._layouts)
            self._laid.num_uses += 1
            some = (rows.bytes, starts, lengths)
            self._native.match(some, self._laid.places, self._laid.firsts, self._weights, (found, times, numbers))
            return found
        short = np.minimum(lengths, MAX_BYTES).astype(np.uint16)
        order = np.argsort(short, kind="stable")
        sorted_ = short[order]
        known = np.array(sorted(self._layouts), np.uint16)
        firsts, ends = np.searchsorted(sorted_, known, "left"), np.searchsorted(sorted_, known, "right")
        groups = zip(known.tolist(), map(order.__getitem__, map(slice, firsts.tolist(), ends.tolist())), strict=True)
        for length, members in groups:
            if len(members):
                self._match_group(rows, starts, length, members, found, times, numbers)
        return found

    def _settle_laid(self) -> None:
        """Templates were added, or which layouts are hit most has to be seen anew."""
        if self._laid is not None:
            self._laid.settle()
            self._laid = None

    def _match_group(
        self, rows: Rows, starts: Ints, length: int, members: Ints, found: Ints, times: Floats, numbers: Ints
    ) -> None:
        """Lines of one length; so many at a time that they stay in the cache from the first step to the last."""
        layouts = self._layouts[length]
        some = _BLOCK_WORDS // ((length + 7) // 8 or 1)
        for first in range(0, len(members), some):
            part = members[first : first + some]
            lines = rows.take(starts[part], length)
            for layout in layouts:
                ids = self.look_up(layout, self.hash(layout, lines), lines)
                known = ids >= 0
                num = int(np.count_nonzero(known))
                layout.hits += num
                if not num:
                    continue
                if num < len(part):
                    mine, rest = (part[known], ids[known], lines[known]), (part[~known], lines[~known])
                else:
                    mine, rest = (part, ids, lines), (part[:0], lines[:0])
                found[mine[0]] = mine[1]
                if layout.geometry.date is not None:
                    times[mine[0]] = dates(mine[2], layout.geometry.date)
                if layout.geometry.number is not None:
                    numbers[mine[0]] = decimals(mine[2], layout.geometry.number)
                part, lines = rest
                if not len(part):
                    break
        if len(layouts) > 1:
            layouts.sort(key=lambda one: -one.hits)


def decimals(lines: Words, number: tuple[int, int]) -> Ints:
    """The number in these columns, at most eighteen digits."""
    start, end = number
    digits = lines.view(np.uint8).reshape(len(lines), -1)[:, start:end].astype(np.int64) - 48
    value: Ints = digits @ (10 ** np.arange(end - start - 1, -1, -1, dtype=np.int64))
    return value


def dates(lines: Words, date: tuple[int, int, int]) -> Floats:
    """Seconds since 1970 of `YYYY-MM-DD HH:MM:SS` at one column of the rows, NaN where there is no such moment."""
    start, fraction, end = date
    cells = lines.view(np.uint8).reshape(len(lines), -1)
    digits = cells[:, start : start + 19].astype(np.int64) - 48

    def number(*columns: int) -> Ints:
        value: Ints = digits[:, columns[0]]
        for column in columns[1:]:
            value = value * 10 + digits[:, column]
        return value

    year, month, day = number(0, 1, 2, 3), number(5, 6), number(8, 9)
    hour, minute, second = number(11, 12), number(14, 15), number(17, 18)
    is_digit = (digits[:, (0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18)] <= 9).all(axis=1)
    good = is_digit & (month >= 1) & (month <= 12) & (day >= 1) & (hour <= 23) & (minute <= 59) & (second <= 60)
    good &= (year >= 1) & (day <= _days_of_month(year, month))
    # Days since 1970 by the civil calendar: March is the first month, so that leap days come last.
    y = year - (month <= 2)
    since_march = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    days = y * 365 + y // 4 - y // 100 + y // 400 + since_march - 719_468
    seconds = (days * 86_400 + hour * 3600 + minute * 60 + second).astype(np.float64)
    if fraction:
        part = cells[:, fraction : min(end, fraction + 9)].astype(np.int64) - 48
        good &= (part <= 9).all(axis=1)
        # whole numbers until the last step, so that the compiled scanner gives the same
        seconds += (part @ 10 ** np.arange(part.shape[1] - 1, -1, -1, dtype=np.int64)) / 10.0 ** part.shape[1]
    seconds[~good] = np.nan
    return seconds


def _days_of_month(year: Ints, month: Ints) -> Ints:
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    usual = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])[np.clip(month, 0, 12)]
    days: Ints = usual + ((month == 2) & leap)
    return days
