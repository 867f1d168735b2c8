"""The lines after one that begins a block (a traceback, a table), until there are enough of them."""

import numpy as np
from msgspec import Struct

from allready.evidence.lines import coll
from allready.evidence.lines.chunk import Lines
from allready.evidence.lines.model import LineLimits, RawLine
from allready.evidence.lines.native import Ints

_FRAME = b'  File "'
_IN_FRAME = 3
"""Lines of a frame: its place, its source, the marks below it."""

_MAX_DEPTH = 8


class _Block(Struct, eq=False):
    line: RawLine
    end_offset: int | None = None  # the lines of the block begin before; None until the end of `line` was seen
    following: list[bytes] = []


class KeptBlocks:
    """All blocks of one log; operations are left out of them."""

    def __init__(self, limits: LineLimits) -> None:
        self.num_cut = 0
        self._limits = limits
        self._open: list[_Block] = []
        self._left_bytes = 2 * limits.kept_bytes

    def begin(self, line: RawLine) -> None:
        """A block begins with this line; the chunk in which it ends is fed afterwards."""
        self._open.append(_Block(line))

    def is_open(self, offset: int) -> bool:
        """Whether a line that begins there belongs to a block."""
        return any(block.end_offset is None or block.end_offset > offset for block in self._open)

    def feed_long(self, text: bytes, offset: int) -> None:
        """Add the beginning of a line that does not fit into a chunk."""
        for block in self._open:
            if not self._is_full(block) and (block.end_offset is None or offset < block.end_offset):
                block.following.append(text[: self._limits.clip_bytes])

    def feed(self, lines: Lines, *, is_first_fed: bool) -> None:
        """Add the lines of a chunk."""
        if self._open:
            followers = np.flatnonzero(~lines.is_coll)
            if is_first_fed:
                followers = followers[followers > 0]
            for block in self._open:
                index = block.line.number - lines.base  # of the line after
                if block.end_offset is None:
                    end = int(lines.starts[index - 1] + lines.lengths[index - 1]) + 1
                    block.end_offset = lines.offset + end + self._limits.block_bytes
                self._add(block, lines, followers[np.searchsorted(followers, index) :])
            self._close(lines)

    def _close(self, lines: Lines) -> None:
        end = lines.offset + int(lines.starts[-1] + lines.lengths[-1]) if len(lines) else lines.offset
        for block in [b for b in self._open if self._is_full(b) or (b.end_offset or 0) <= end]:
            self._finish(block)

    def _is_full(self, block: _Block) -> bool:
        """Whether it has as many lines as a block has; a deep traceback goes on until its exception."""
        num, least = len(block.following), self._limits.block_lines
        is_deep = least <= num < _MAX_DEPTH * least and any(_FRAME in text for text in block.following[-_IN_FRAME:])
        return num >= least and not is_deep

    def _finish(self, block: _Block) -> None:
        block.line.following = tuple(block.following)
        self._open.remove(block)

    def _add(self, block: _Block, lines: Lines, followers: Ints) -> None:
        for index in followers[: max(0, _MAX_DEPTH * self._limits.block_lines - len(block.following))].tolist():
            if self._is_full(block) or lines.offset + int(lines.starts[index]) >= (block.end_offset or 0):
                break
            if self._left_bytes <= 0:
                self.num_cut += 1
                break
            text = lines.text(index, self._limits.clip_bytes).rstrip(b"\r")
            self._left_bytes -= len(text) + 40
            block.following.append(text)

    def feed_after(self, after: Lines) -> None:
        """Add lines behind the part that is scanned."""
        wanted = [i for i in range(len(after)) if self.is_open(after.offset + int(after.starts[i]))]
        followers = np.array([i for i in wanted if coll.parse(after.text(i, coll.MAX_BYTES)) is None], np.int64)
        for block in self._open:
            self._add(block, after, followers)
        self._close(after)

    def finish(self) -> None:
        """The log ends."""
        for block in tuple(self._open):
            self._finish(block)
