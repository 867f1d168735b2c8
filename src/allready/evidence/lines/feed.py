"""Hands a stream out in chunks of whole lines, from one buffer that is used again and again."""

import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from allready.evidence.lines.coll import MAX_BYTES
from allready.evidence.lines.templates import Rows
from allready.model.fill import said
from allready.model.finding import Phrase

CHUNK = 2 << 20
OnBytes = Callable[[int], None] | None
READ_ERRORS = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)


class Chunk(NamedTuple):
    """The first `length` bytes of the buffer.

    They are lines with their newlines, or whole pieces of a line that does not fit (`is_open`); then `available` bytes
    may be examined.  `offset` is the place of the first byte in the stream.
    """

    length: int
    available: int
    offset: int
    is_open: bool


class ChunkFeed:
    """Chunks of `stream`, whose next byte is number `offset`.

    `size`: of the buffer; `first`: what is read of it for the first chunk.  A line that is longer than the buffer comes
    in pieces of `piece` bytes, of which at least `overlap` bytes more are there to be examined.  `rows` makes
    the buffer, with anything in it.
    """

    def __init__(
        self,
        stream: BinaryIO,
        offset: int,
        *,
        size: int,
        piece: int,
        overlap: int,
        on_bytes: OnBytes,
        first: int | None = None,
        rows: Callable[[int], Rows] = lambda num_bytes: Rows(bytearray(num_bytes)),
    ) -> None:
        self.size = max(size, 2 * (piece + overlap))
        self._first = self.size if first is None else min(first, self.size)
        self.rows = rows(self.size + MAX_BYTES + 16)
        self.buffer = self.rows.buffer
        self.problem: Phrase | None = None
        self.is_newline_added = False  # the last line had none
        self._stream = stream
        self._fill: Callable[[memoryview], int | None] | None
        self._offset = offset  # of the buffer's first byte
        self._piece, self._overlap = piece, overlap
        self._on_bytes = on_bytes
        self._view = memoryview(self.buffer)
        # One read at a time where there is the choice: what comes before damage in an archive is not lost.
        self._fill = getattr(stream, "readinto1", None) or getattr(stream, "readinto", None)
        self._have = 0

    def skip_line(self) -> bool:
        """Before the first chunk: go on after the next newline.  Whether there was one."""
        while True:
            num = self._read(0, self.size)
            if not num:
                return False
            at = self.buffer.find(b"\n", 0, num)
            if at >= 0:
                self._offset += at + 1
                self._have = num - at - 1
                self.buffer[: self._have] = self.buffer[at + 1 : num]
                return True
            self._offset += num

    def chunks(self) -> Iterator[Chunk]:
        """To the end of the stream, or of what can be read of it."""
        have = self._have
        most = self._first if have < self._first else self.size
        while True:
            num = self._read(have, most)
            most = self.size
            have += num
            is_end = num == 0
            if is_end and have and self.buffer[have - 1] != 10:
                self.buffer[have] = 10
                self.is_newline_added = True
                have += 1
            length = self.buffer.rfind(b"\n", 0, have) + 1
            is_open = False
            if not length and have == self.size and not is_end:
                length, is_open = (have - self._overlap) // self._piece * self._piece, True
            if length:
                yield Chunk(length, have if is_open else length, self._offset, is_open)
                have -= length
                self._view[:have] = bytes(self._view[length : length + have])
                self._offset += length
            if is_end:
                return

    def _read(self, have: int, most: int) -> int:
        """Fill the buffer from `have` on, up to `most` bytes; 0 at the end."""
        total = 0
        while have + total < most:
            try:
                num = self._once(have + total, most)
            except READ_ERRORS as error:
                text = " ".join(str(error).split())[:200]
                place = self._offset + have + total
                what = f"{type(error).__name__}: {text}"
                self.problem = said("reading stopped at byte {place}: {error}", place=place, error=what)
                num = 0
            if not num:
                break
            total += num
        if total and self._on_bytes is not None:
            self._on_bytes(total)
        return total

    def _once(self, at: int, most: int) -> int:
        if self.problem is not None:
            return 0
        if self._fill is not None:
            return self._fill(self._view[at:most]) or 0
        data = self._stream.read(most - at) or b""
        self._view[at : at + len(data)] = data
        return len(data)
