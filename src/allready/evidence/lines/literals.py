"""Finds hundreds of literals in a buffer at once, with numpy alone.

Every literal of seven bytes or more has a whole aligned 32-bit word inside, wherever it stands.  So for each of the
four ways it can lie one of its words is chosen (the one with the rarest bytes), all chosen words go into one table, and
only the aligned words of the buffer are looked up.  Shorter literals need a second search with the words shifted by two
bytes, or all four.  What the table lets through is compared exactly.
"""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from allready.evidence.lines.native import Ints, LiteralsPlace, Native

Words = npt.NDArray[np.uint32]

_BITS = 18
_FACTOR = np.uint32(2_654_435_761)
_DOWN = np.uint32(32 - _BITS)
_COMMON = b" etaoinsrhldcum"
_WEIGHTS = bytes(len(_COMMON) - _COMMON.index(byte) if byte in _COMMON else 0 for byte in range(256))
SHORTEST = 4
_FEW = 16
_FEW_WORDS = 8
NOTHING: Ints = np.empty(0, np.int64)


class Literals:
    """A set of literals to be found.  None may contain a newline; each has at least four bytes."""

    def __init__(self, literals: Sequence[bytes]) -> None:
        self.literals = tuple(dict.fromkeys(literals))
        self.sizes: Ints = np.array([len(literal) for literal in self.literals], np.int64)
        by_word: list[dict[int, list[tuple[int, int]]]] = [{}, {}, {}, {}]
        for index, literal in enumerate(self.literals):
            if len(literal) < SHORTEST or b"\n" in literal:
                msg = f"{literal!r} cannot be searched"
                raise ValueError(msg)
            for phase, offset in _words_of(literal):
                word = int.from_bytes(literal[offset : offset + 4], "little")
                by_word[phase].setdefault(word, []).append((offset, index))
        self._phases = [
            (phase, _Table(words) if len(words) > _FEW_WORDS else None, np.array(sorted(words), np.uint32), words)
            for phase, words in enumerate(by_word)
            if words
        ]
        self._places: list[tuple[int, LiteralsPlace]] | None = None  # the same for the compiled scanner

    def find(self, data: bytes | bytearray, length: int, native: Native | None = None) -> tuple[Ints, Ints]:
        """(position, index of the literal) of everything in the first `length` bytes, by position."""
        if native is None:
            found, which = self._by_arrays(data, length)
        else:
            if self._places is None:
                self._places = [(phase, self._place(words, by_word)) for phase, _, words, by_word in self._phases]
            parts = [native.literals(data, length, *place) for place in self._places]
            found, which = (np.concatenate([NOTHING, *(part[i] for part in parts)]) for i in (0, 1))
        if not len(found):
            return NOTHING, NOTHING
        order = np.lexsort((which, found))
        found, which = found[order], which[order]
        # A short literal is seen in more than one way.
        new = np.concatenate(([True], (found[1:] != found[:-1]) | (which[1:] != which[:-1])))
        return found[new], which[new]

    def _place(self, words: Words, by_word: dict[int, list[tuple[int, int]]]) -> LiteralsPlace:
        """The words of one phase as C takes them."""
        entries = [by_word[word] for word in words.tolist()]
        bits = _Table(by_word).bits
        firsts = np.cumsum([0, *map(len, entries)])
        offsets, indexes = np.array([entry for some in entries for entry in some], np.int64).T.copy()
        text = b"".join(self.literals)
        begins = np.cumsum(self.sizes) - self.sizes
        keep = (bits, words, firsts, offsets, indexes, np.frombuffer(text, np.uint8), begins, self.sizes)
        at = [array.ctypes.data for array in keep]
        place = LiteralsPlace(int(_FACTOR), int(_DOWN), *at[:2], len(words), *at[2:])
        place.most_entries, place.keep = max(map(len, entries)), keep
        return place

    def _by_arrays(self, data: bytes | bytearray, length: int) -> tuple[Ints, Ints]:
        """In no order, and some of them twice."""
        places: list[int] = []
        indexes: list[int] = []
        for phase, table, words, by_word in self._phases:
            count = (length - phase) // 4
            if count <= 0:
                continue
            view = np.frombuffer(data, "<u4", count, phase)
            hits = np.flatnonzero(_is_any(view, words)) if table is None else table.find(view)
            if not len(hits):
                continue
            values = view[hits]
            at = np.searchsorted(words, values)
            at[at == len(words)] = 0
            exact = words[at] == values
            hits, at = hits[exact] * 4 + phase, at[exact]
            order = np.argsort(at, kind="stable")
            hits, at = hits[order], at[order]
            borders = np.concatenate(([0], np.flatnonzero(np.diff(at)) + 1, [len(at)])).tolist()
            numbers = words[at[borders[:-1]]].tolist() if len(at) else []
            for number, (first, end) in zip(numbers, itertools.pairwise(borders), strict=False):
                for offset, index in by_word[number]:
                    literal = self.literals[index]
                    good = _standing(data, length, hits[first:end], offset, literal)
                    if len(good):
                        places += good
                        indexes += [index] * len(good)
        return np.array(places, np.int64), np.array(indexes, np.int64)


def _standing(data: bytes | bytearray, length: int, hits: Ints, offset: int, literal: bytes) -> list[int]:
    """Where the literal really stands, of the places that lie `offset` before the hits."""
    size = len(literal)
    if len(hits) <= _FEW:
        places = [hit - offset for hit in hits.tolist()]
        return [p for p in places if p >= 0 and p + size <= length and data.startswith(literal, p)]
    starts = hits - offset
    starts = starts[(starts >= 0) & (starts + size <= length)]
    width = 8 if size >= 8 else 4
    view = np.lib.stride_tricks.as_strided(
        np.frombuffer(data, f"V{width}", 1), (length - width + 1,), (1,), writeable=False
    )
    for part in (0, size - width):
        wanted = np.frombuffer(literal[part : part + width], f"<u{width}")[0]
        starts = starts[view[starts + part].view(f"<u{width}") == wanted]
    places = [int(place) for place in starts]
    return places if size <= 2 * width else [place for place in places if data.startswith(literal, place)]


def _words_of(literal: bytes) -> Iterable[tuple[int, int]]:
    """(phase, offset) so that, wherever the literal stands, one of the words lies at a place that is examined."""
    num_offsets = len(literal) - 3
    if num_offsets >= 4:
        weights = literal.translate(_WEIGHTS)
        common = [weights[o] + weights[o + 1] + weights[o + 2] + weights[o + 3] for o in range(num_offsets)]
        for lie in range(4):
            yield 0, min(range(lie, num_offsets, 4), key=common.__getitem__)
    elif num_offsets >= 2:
        for offset in (0, 1):
            yield 0, offset
            yield 2, offset
    else:
        for phase in range(4):
            yield phase, 0


def _is_any(view: Words, words: Words) -> npt.NDArray[np.bool_]:
    hits: npt.NDArray[np.bool_] = view == words[0]
    for word in words[1:]:
        hits |= view == word
    return hits


class _Table:
    """Some words by their hash."""

    def __init__(self, words: Iterable[int]) -> None:
        self._is_in = np.zeros(1 << _BITS, np.bool_)
        self._is_in[(np.array(list(words), np.uint32) * _FACTOR) >> _DOWN] = True

    @property
    def bits(self) -> npt.NDArray[np.uint8]:
        """One for each hash: whether a word has it."""
        return np.packbits(self._is_in, bitorder="little")

    def find(self, view: Words) -> Ints:
        """Where they are, and others with the same hash."""
        slots = view * _FACTOR
        slots >>= _DOWN
        return np.flatnonzero(np.take(self._is_in, slots, mode="wrap"))


def distinct(numbers: Ints) -> Ints:
    """Numbers in order, each once."""
    return numbers[np.concatenate(([True], numbers[1:] != numbers[:-1]))] if len(numbers) else numbers


def places_of(data: bytes | bytearray, length: int, words: Sequence[bytes], *, any_case: bool = False) -> Ints:
    """Where any of these words of four bytes stands, in order.  `any_case`: they are given in small letters."""
    wanted = np.array([int.from_bytes(word, "little") for word in words], np.uint32)
    parts = []
    for phase in range(4):
        count = (length - phase) // 4
        if count <= 0:
            continue
        view = np.frombuffer(data, "<u4", count, phase)
        if any_case:
            view = view | np.uint32(0x20202020)
        parts.append(np.flatnonzero(_is_any(view, wanted)) * 4 + phase)
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)
