"""The lines of a chunk that are no operations: which are worth keeping, and which say an iteration."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from allready.evidence.lines.anchors import BLOCK_ANCHORS, LINE_ANCHORS
from allready.evidence.lines.forms import NCCL_WORD
from allready.evidence.lines.line_buffer import clip
from allready.evidence.lines.literals import Literals, distinct, places_of
from allready.evidence.lines.marks import WORDS, Marker, Marks
from allready.evidence.lines.native import Ints, Native
from allready.signatures import table


class ResidueHit(NamedTuple):
    """A line worth keeping: its place among the lines searched, the part that is worth it, and how it goes on.

    `is_whole`: the part is the whole line.  `is_marked`: the line says an iteration.
    """

    line: int
    text: bytes
    is_block: bool
    is_nccl: bool
    is_whole: bool
    is_marked: bool


class ResidueReader:
    """Finds the literals of the signatures and of the readers of blocks, and iteration markers."""

    def __init__(self, marker: Marker, anchors: Sequence[str] | None, clip_bytes: int, native: Native | None) -> None:
        self.marker = marker
        self._native = native
        self._anchors = anchors
        self._clip_bytes = clip_bytes

    @functools.cached_property
    def _literals(self) -> Literals:  # asked for late: many logs need none
        some = (*table.anchors(), *LINE_ANCHORS) if self._anchors is None else self._anchors
        return _literals((*BLOCK_ANCHORS, *some))

    @functools.cached_property
    def _blocks(self) -> Literals:
        return _literals(BLOCK_ANCHORS)

    def anchors(self, data: bytes, length: int) -> Ints:
        """Where the literals stand that make a line worth keeping, but for NCCL's word."""
        return self._literals.find(data, length, self._native)[0]

    def blocks(self, data: bytes, length: int) -> Ints:
        """Where those stand that begin a block."""
        return self._blocks.find(data, length, self._native)[0]

    def places(self, data: bytes) -> Ints | None:
        """Where anything stands for which `read` would give something, or may, in order; None where that is not known
        without it."""
        if self.marker.is_own:
            return None
        found = (self.anchors(data, len(data)), places_of(data, len(data), (NCCL_WORD[:4],)))
        return np.sort(np.concatenate((*found, places_of(data, len(data), WORDS, any_case=True))))

    def read(
        self, data: bytes | bytearray, length: int, starts: Ints, *, before: int | None = None
    ) -> tuple[list[ResidueHit], Marks]:
        """Everything in the lines that begin at `starts`.  `before`: leave out what begins there or behind."""
        marks = self.marker.find(data, length, starts)
        found = places_of(data, length, (NCCL_WORD[:4],))
        if len(found):
            found = found[np.frombuffer(data, np.uint8)[found + 4] == NCCL_WORD[4]]
        # A line with NCCL's word is kept for that; of the other literals only those that begin a block matter there.
        is_nccl_only = len(distinct(np.searchsorted(starts, found, "right"))) == len(starts)
        literals = self._blocks if is_nccl_only else self._literals
        places, which = literals.find(data, length, self._native)
        sizes = literals.sizes[which]
        is_nccl = np.concatenate((np.ones(len(found), np.bool_), np.zeros(len(places), np.bool_)))
        is_block = np.concatenate((np.zeros(len(found), np.bool_), which < len(BLOCK_ANCHORS)))
        places = np.concatenate((found, places))
        sizes = np.concatenate((np.full(len(found), len(NCCL_WORD)), sizes))
        if before is not None:
            marks = Marks(*(column[marks.places < before] for column in marks))
            good = places < before
            places, sizes, is_nccl, is_block = places[good], sizes[good], is_nccl[good], is_block[good]
        if not len(places):
            return [], marks
        lines = np.searchsorted(starts, places, "right") - 1
        order = np.lexsort((places, ~is_nccl, lines))
        lines = lines[order]
        firsts = np.flatnonzero(np.concatenate(([True], lines[1:] != lines[:-1])))
        lines, chosen = lines[firsts], order[firsts]
        begins = starts[lines]
        ends = np.append(starts[1:], length)[lines]
        hits = []
        for line, begin, end, place, size, nccl, block, marked in zip(
            lines.tolist(),
            begins.tolist(),
            ends.tolist(),
            places[chosen].tolist(),
            sizes[chosen].tolist(),
            is_nccl[chosen].tolist(),
            np.logical_or.reduceat(is_block[order], firsts).tolist(),
            (np.isin(lines, marks.lines) if len(marks.lines) else np.zeros(len(lines), np.bool_)).tolist(),
            strict=True,
        ):
            whole = bytes(data[begin:end]).removesuffix(b"\n")
            is_short = len(whole) <= self._clip_bytes and b"\r" not in whole
            text = whole if is_short else clip(whole, place - begin, size, self._clip_bytes)
            hits.append(ResidueHit(line, text, block, nccl, is_short or len(text) == len(whole), marked))
        return hits, marks


@functools.lru_cache(maxsize=4)
def _literals(literals: tuple[str, ...]) -> Literals:
    return Literals([literal.encode() for literal in literals])
