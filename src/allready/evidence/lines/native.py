"""The compiled part of the scanner (`native.c`), where it was built: it changes nothing but time.

Installing compiles it where there is a C compiler; everything works without it, and `ALLREADY_NO_NATIVE=1` in the
environment switches it off.
"""

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from allready.names import NO_NATIVE_VARIABLE

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]

LIBRARY = Path(__file__).with_name("native.lib")
VERSION = 6
_MOST_SEGMENTS = 4_096
"""New ones between carriage returns that one call tells."""
_MOST_LITERALS = 4_096
"""Those that one call finds."""

_INT, _WORD, _AT = ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p
_TABLE = (_AT, _AT, _WORD)
_SOME_LINES = (_AT, _AT, _AT, _AT, _INT)  # the buffer, starts, lengths, indexes and their number
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "insert": (None, (_AT, _AT, _INT, *_TABLE)),
    "count": (_INT, (_AT, _INT)),
    "newlines": (_INT, (_AT, _INT, _AT)),
    "literals": (_INT, (_AT, _INT, _INT, _INT, _AT, _INT, _AT, _AT, _AT)),
    "splice": (_INT, (*_SOME_LINES, _AT, _AT)),
    "find": (None, (_AT, _INT, *_TABLE, _AT)),
    "forms": (_INT, (*_SOME_LINES, _AT, _AT, _AT, _AT)),
    "processes": (_INT, (*_SOME_LINES, _AT, *_TABLE, _AT, _AT)),
    "groups": (_INT, (_AT, _INT, *_TABLE, _AT, _AT, _AT)),
    "marks": (_INT, (*_SOME_LINES, _INT, _INT, _INT, _AT, *_TABLE, *6 * (_AT,))),
    "records": (_INT, (_AT, _INT, _AT, _AT, _AT, _AT)),
    "uncoloured": (_INT, (_AT, _INT, _AT)),
    "match": (None, (_AT, _AT, _AT, _INT, _AT, _AT, _INT, _AT, _AT, _AT, _AT)),
}


@functools.cache
def _loaded(path: str) -> ctypes.CDLL | None:
    """The library, if it is there, loads, and is of this version."""
    try:
        library = ctypes.CDLL(path)
        library.allready_version.restype = _INT
        if library.allready_version() != VERSION:
            return None
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, f"allready_{name}")
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    return library


def native() -> "Native | None":
    """For one log; None where it was not built or is switched off."""
    library = None if os.environ.get(NO_NATIVE_VARIABLE) else _loaded(str(LIBRARY))
    return None if library is None else Native(library)


class HashTable:
    """From hashes (never 0) to numbers (never negative)."""

    def __init__(self, insert: Callable[..., None], find: Callable[..., None]) -> None:
        self._insert, self._find = insert, find
        self._num, self._most = 0, 32  # half of the places
        self.keys: Words = np.zeros(64, np.uint64)
        self.values: Ints = np.zeros(64, np.int64)

    def __len__(self) -> int:
        return self._num

    def add(self, hashes: Words, values: Ints) -> None:
        """New ones; of a hash that is known the number changes."""
        self._num += len(hashes)
        if self._num > self._most:
            used = np.flatnonzero(self.keys)
            hashes, values = np.concatenate((self.keys[used], hashes)), np.concatenate((self.values[used], values))
            room = 1 << (4 * self._num).bit_length()
            self.keys, self.values = np.zeros(room, np.uint64), np.zeros(room, np.int64)
            self._most = room // 2
        hashes, values = np.ascontiguousarray(hashes, np.uint64), np.ascontiguousarray(values, np.int64)
        self._insert(hashes.ctypes.data, values.ctypes.data, len(hashes), *self.place)

    def find(self, hashes: Words) -> Ints:
        """Their numbers, -1 where one is not known."""
        hashes = np.ascontiguousarray(hashes, np.uint64)
        found = np.empty(len(hashes), np.int64)
        self._find(hashes.ctypes.data, len(hashes), *self.place, found.ctypes.data)
        return found

    @property
    def place(self) -> tuple[int, int, int]:
        """As C takes it."""
        return self.keys.ctypes.data, self.values.ctypes.data, len(self.keys) - 1


class LayoutPlace(ctypes.Structure):
    """`Layout` of `native.c`."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("shift", _AT), ("mask", _AT), ("width", _INT), ("keys", _AT), ("ids", _AT), ("table_mask", _WORD),
        ("checked", _AT), ("classes", _AT), ("num_checked", _INT), ("date", _INT), ("fraction", _INT),
        ("fraction_end", _INT), ("number", _INT), ("number_end", _INT), ("counter", _INT),
        ("hits", _INT),
    ]  # fmt: skip


class LiteralsPlace(ctypes.Structure):
    """`Literals` of `native.c`; `most_entries`: of one word."""

    most_entries: int
    keep: tuple[Any, ...]
    """What the addresses stand for, so that it lives as long."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("factor", _INT), ("down", _INT), ("bits", _AT), ("words", _AT), ("num_words", _INT), ("firsts", _AT),
        ("offsets", _AT), ("literals", _AT), ("text", _AT), ("begins", _AT), ("sizes", _AT),
    ]  # fmt: skip


class _Known(ctypes.Structure):
    """`Known` of `native.c`."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("secret", _AT), ("keys", _AT), ("values", _AT), ("mask", _WORD), ("kinds", _AT),
    ]  # fmt: skip


class _SegmentsPlace(ctypes.Structure):
    """`Segments` of `native.c`."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("num", _INT), ("most", _INT), ("num_new", _INT), ("hashes", _AT), ("places", _AT), ("lengths", _AT),
    ]  # fmt: skip


class _Record(ctypes.Structure):
    """`Record` of `native.c`."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("keys", 3 * ctypes.c_char_p), ("lengths", 3 * _INT), ("has_ends", _INT)
    ]  # fmt: skip


class FormNumbers(NamedTuple):
    """The number of each line's form (0 where it can have none, -1 where it is new) and its hash, 0 where it has
    carriage returns; how many are new.  `num_segments` stand between carriage returns, `num_new_segments` of them are
    new; of those, up to a bound, `segment_hashes`, `places` and `lengths`."""

    numbers: Ints
    hashes: Words
    num_new: int
    num_segments: int
    num_new_segments: int
    segment_hashes: Words
    places: Ints
    lengths: Ints


class Native:
    """The functions, for lines of one buffer: arrays go in and out."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.secret: Words = np.frombuffer(os.urandom(32), np.uint64) | np.uint64(1)
        self._most = 1 << 9  # half of the places
        self._scratch: Words = np.zeros(1 << 10, np.uint64)
        self._scratch_values: Ints = np.zeros(1 << 10, np.int64)
        self._bytes: Array = np.empty(0, np.uint8)

    def table(self) -> HashTable:
        """An empty one."""
        return HashTable(self._library.allready_insert, self._library.allready_find)

    def newlines(self, data: Array, size: int) -> Ints:
        """Where each newline of the first `size` bytes stands."""
        ends = np.empty(self._library.allready_count(data.ctypes.data, size), np.int64)
        self._library.allready_newlines(data.ctypes.data, size, ends.ctypes.data)
        return ends

    def literals(self, data: bytes | bytearray, size: int, phase: int, known: LiteralsPlace) -> tuple[Ints, Ints]:
        """Where literals begin in the first `size` bytes, and which, of those that words at this phase tell."""
        view, first, num_found = np.frombuffer(data, np.uint8), 0, _INT(0)
        most, parts = _MOST_LITERALS + known.most_entries, [np.empty((2, 0), np.int64)]
        while first < (size - phase) // 4:
            found = np.empty((2, most), np.int64)
            some = (view.ctypes.data, size, phase, first, ctypes.addressof(known), most)
            out = (found[0].ctypes.data, found[1].ctypes.data, ctypes.addressof(num_found))
            first = self._library.allready_literals(*some, *out)
            parts.append(found[:, : num_found.value])
        places, which = np.concatenate(parts, axis=1)
        return places, which

    def splice(self, data: Array, starts: Ints, lengths: Ints, at: Ints, out: bytearray) -> Ints:
        """Copy lines with their newlines into `out`; where each begins."""
        places = np.empty(len(at), np.int64)
        target = np.frombuffer(out, np.uint8)
        lines = self._lines(data, starts, lengths, at)
        self._library.allready_splice(*lines, target.ctypes.data, places.ctypes.data)
        return places

    def forms(
        self, data: Array, starts: Ints, lengths: Ints, at: Ints, table: HashTable, kinds: npt.NDArray[np.uint8]
    ) -> FormNumbers:
        """The forms of the lines `at`.  `kinds`: of each number in the table; a segment with another one than
        `forms.MARKED` decides for its line."""
        numbers, hashes = np.empty(len(at), np.int64), np.empty(len(at), np.uint64)
        new, (places, sizes) = np.empty(_MOST_SEGMENTS, np.uint64), np.empty((2, _MOST_SEGMENTS), np.int64)
        segments = _SegmentsPlace(0, _MOST_SEGMENTS, 0, *(x.ctypes.data for x in (new, places, sizes)))
        known = _Known(self.secret.ctypes.data, *table.place, kinds.ctypes.data)
        lines = self._lines(data, starts, lengths, at)
        out = (hashes.ctypes.data, numbers.ctypes.data, ctypes.addressof(segments))
        num_new = self._library.allready_forms(*lines, ctypes.addressof(known), *out)
        end = min(segments.num_new, _MOST_SEGMENTS)
        counts = (num_new, segments.num, segments.num_new)
        return FormNumbers(numbers, hashes, *counts, new[:end], places[:end], sizes[:end])

    def processes(
        self, data: Array, starts: Ints, lengths: Ints, at: Ints, table: HashTable
    ) -> tuple[Ints, Words, int]:
        """The number of the process that each line of NCCL's names (0 for none, -1 where it is new), its hash, how
        many are new."""
        numbers, hashes = np.empty(len(at), np.int64), np.empty(len(at), np.uint64)
        lines = self._lines(data, starts, lengths, at)
        num_new = self._library.allready_processes(
            *lines, self.secret.ctypes.data, *table.place, hashes.ctypes.data, numbers.ctypes.data
        )
        return numbers, hashes, num_new

    def groups(self, keys: Ints) -> tuple[Ints, Ints]:
        """The indexes of equal keys, group by group as they first come; where each group begins."""
        num = len(keys)
        if num > self._most:
            room = 1 << (2 * num).bit_length()
            self._most = room // 2
            self._scratch, self._scratch_values = np.zeros(room, np.uint64), np.zeros(room, np.int64)
        which, order, begins = (np.empty(num, np.int64) for _ in range(3))
        keys = np.ascontiguousarray(keys, np.int64)
        places = (array.ctypes.data for array in (self._scratch, self._scratch_values))
        num_groups = self._library.allready_groups(
            keys.ctypes.data, num, *places, len(self._scratch) - 1, *(x.ctypes.data for x in (which, order, begins))
        )
        return order, begins[:num_groups]

    def marks(
        self,
        lines: tuple[Array, Ints, Ints, Ints],
        bounds: tuple[int, int],
        known: HashTable,
        is_good: Callable[[int, int], bool],
    ) -> tuple[Ints, Ints, Ints]:
        """The first marker of each line (buffer, starts, lengths, indexes): its line, place and number.

        `bounds`: bytes between word and number, and digits, at most.  `is_good`: of the word at a place in line
        `index`, asked for once for equal bytes before it.
        """
        num = len(lines[3])
        found = [np.empty(num, np.int64) for _ in range(3)]
        num_found, place, hashed = _INT(0), _INT(0), _WORD(0)
        outs = (*(x.ctypes.data for x in found), *map(ctypes.addressof, (num_found, place, hashed)))
        first, some = 0, self._lines(*lines)
        while True:
            first = self._library.allready_marks(*some, first, *bounds, self.secret.ctypes.data, *known.place, *outs)
            if first >= num:
                break
            good = is_good(first, place.value)
            known.add(np.array([hashed.value], np.uint64), np.array([good], np.int64))
        return found[0][: num_found.value], found[1][: num_found.value], found[2][: num_found.value]

    def records(
        self, lines: bytes, start: int, keys: tuple[str, str, str], *, has_ends: bool
    ) -> tuple[bytes, int, int]:
        """JSON records from `start` on, up to the first that is not plainly one with one line: the lines in them, where
        they end and how many they are.

        `keys`: of the text, of the time that is put before it and of the stream, "" where there is none.  `has_ends`:
        a text without a newline at its end is a piece of a line.
        """
        names = [key.encode() for key in keys]
        record = _Record((3 * ctypes.c_char_p)(*names), (3 * _INT)(*map(len, names)), has_ends)
        data = np.frombuffer(lines, np.uint8)
        out, written, num = self._room(len(lines) - start), _INT(0), _INT(0)
        args = data.ctypes.data + start, len(lines) - start, ctypes.addressof(record), out.ctypes.data
        read = self._library.allready_records(*args, *map(ctypes.addressof, (written, num)))
        return out[: written.value].tobytes(), start + read, num.value

    def uncoloured(self, lines: bytes) -> bytes:
        """The same without escapes of a terminal."""
        data, out = np.frombuffer(lines, np.uint8), self._room(len(lines))
        return out[: self._library.allready_uncoloured(data.ctypes.data, len(lines), out.ctypes.data)].tobytes()

    def _room(self, size: int) -> Array:
        """Bytes to write to, until it is asked for again."""
        if size > len(self._bytes):
            self._bytes = np.empty(size, np.uint8)
        return self._bytes

    def match(
        self,
        lines: tuple[Array, Ints, Ints],
        layouts: "ctypes.Array[LayoutPlace]",
        firsts: Ints,
        weights: Words,
        out: tuple[Ints, Floats, Ints],
    ) -> None:
        """Fill in the template of each line (buffer, starts, lengths), its time and its number."""
        data, starts, lengths = lines[0], np.ascontiguousarray(lines[1]), np.ascontiguousarray(lines[2])
        self._library.allready_match(
            data.ctypes.data,
            starts.ctypes.data,
            lengths.ctypes.data,
            len(starts),
            ctypes.addressof(layouts),
            firsts.ctypes.data,
            len(firsts) - 2,
            weights.ctypes.data,
            *(array.ctypes.data for array in out),
        )

    def _lines(self, data: Array, starts: Ints, lengths: Ints, at: Ints) -> tuple[int, int, int, int, int]:
        assert starts.flags.c_contiguous and lengths.flags.c_contiguous and at.flags.c_contiguous  # noqa: PT018
        return data.ctypes.data, starts.ctypes.data, lengths.ctypes.data, at.ctypes.data, len(at)
