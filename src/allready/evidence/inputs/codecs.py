"""Decompression of streams: bounded output whatever the input, everything readable before the damage is given.

Text in UTF-16 becomes UTF-8 in the same way.
"""

import codecs
import zlib
from collections.abc import Callable
from typing import Protocol

from allready.evidence.inputs.limits import Budget, DamagedError

CHUNK = 1 << 18

MAGICS = {"gzip": b"\x1f\x8b\x08", "bzip2": b"BZh", "xz": b"\xfd7zXZ\x00", "zstd": b"\x28\xb5\x2f\xfd"}
_ZSTD_SKIPPABLE = tuple(bytes((0x50 + i, 0x2A, 0x4D, 0x18)) for i in range(16))
_BZIP2_BLOCKS = (b"\x31\x41\x59\x26\x53\x59", b"\x17\x72\x45\x38\x50\x90")
_FIRST_PIECE = 2048  # a file of very many tiny members must not be copied again for each
_MAX_MAGIC = 32
_UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_MAX_XZ_MEMORY = 256 << 20  # xz -9 needs 65 MiB; a header may ask for 4 GiB


class ByteFeed(Protocol):
    """Bytes in order: `read(n)` gives at most n, at least one until the end."""

    def read(self, most: int, /) -> bytes: ...


class Decompressor(Protocol):
    """The shape that bz2, lzma and zstd of the standard library share."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


def codec_of(head: bytes) -> str | None:
    """Which compression `head` begins with: "gzip", "bzip2", "xz", "zstd" or None."""
    for codec, magic in MAGICS.items():
        if head.startswith(magic):
            if codec == "bzip2" and not (head[3:4] in b"123456789" and head[4:10] in _BZIP2_BLOCKS):
                continue
            return codec
    return "zstd" if head[:4] in _ZSTD_SKIPPABLE else None


class _Zlib:
    """zlib's decompressor in the shape of the others."""

    def __init__(self, wbits: int) -> None:
        self._inner = zlib.decompressobj(wbits)
        self._full = False

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not (self._full or self._inner.unconsumed_tail)

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        out = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        self._full = len(out) == max_length
        return out


def decompressor(codec: str) -> Callable[[], Decompressor]:
    """Makes decompressors of `codec`; "deflate" is zip's.

    Raises:
        DamagedError: this Python lacks it.
    """
    if codec == "gzip":
        return lambda: _Zlib(31)
    if codec == "deflate":
        return lambda: _Zlib(-15)
    try:
        if codec == "bzip2":
            from bz2 import BZ2Decompressor

            return BZ2Decompressor
        if codec in {"xz", "lzma"}:
            import lzma

            return lambda: lzma.LZMADecompressor(memlimit=_MAX_XZ_MEMORY)
        return _zstd()
    except ImportError as error:
        raise DamagedError(
            "{codec} cannot be unpacked here: {error}; unpack it first", codec=codec, error=error
        ) from error


def _zstd() -> Callable[[], Decompressor]:
    import importlib

    try:
        module = importlib.import_module("compression.zstd")  # from Python 3.14 on
    except ImportError:
        module = importlib.import_module("backports.zstd")
    make: Callable[[], Decompressor] = module.ZstdDecompressor  # its window is at most 128 MiB
    return make


class Inflate:
    """The content of compressed data, of all its members or frames.

    `read` raises DamagedError where the data ends early or makes no sense, and TooMuchError from the budget.
    """

    def __init__(self, feed: ByteFeed, codec: str, budget: Budget, *, single: bool = False) -> None:
        self._feed = feed
        self._codec = codec
        self._budget = budget
        self._make = decompressor(codec)
        self._inner = self._make()
        self._single = single
        self._ended = False
        self._taken = b""  # from the feed; what lies before `_start` was given to the decompressor
        self._start = 0
        self._piece = _FIRST_PIECE

    @property
    def unused(self) -> bytes:
        """What was taken from the feed and follows the end of the data."""
        return self._taken[self._start :]

    def read(self, most: int) -> bytes:
        while not self._ended:
            if self._inner.eof and not self._next_member():
                self._ended = True
                break
            data = b""
            if self._inner.needs_input:
                if self._start == len(self._taken) and not self._take_more():
                    raise DamagedError("its {codec} data ends in the middle: it was cut", codec=self._codec)
                data = self._taken[self._start : self._start + self._piece]
                self._start += len(data)
                self._piece = min(self._piece * 2, CHUNK)
            try:
                out = self._inner.decompress(data, most)
            except MemoryError:
                raise
            except Exception as error:  # each library has an error class of its own
                raise DamagedError("its {codec} data is damaged: {error}", codec=self._codec, error=error) from error
            if self._inner.eof:
                self._start -= len(self._inner.unused_data)
            if out:
                self._budget.gave(len(out), self._codec)
                return out
        return b""

    def _take_more(self) -> bool:
        more = self._feed.read(CHUNK)
        self._taken, self._start = self._taken[self._start :] + more, 0
        return bool(more)

    def _next_member(self) -> bool:
        """Go on with what follows the end of a member, if it is one; zeros are padding, anything else is ignored."""
        if self._single:
            return False
        while True:
            if not self._taken.startswith(b"\0", self._start):
                if len(self._taken) - self._start >= _MAX_MAGIC or not self._take_more():
                    break
            else:
                rest = self._taken[self._start :].lstrip(b"\0")
                self._taken, self._start = rest, 0
        if codec_of(self._taken[self._start : self._start + _MAX_MAGIC]) != self._codec:
            return False
        self._inner = self._make()
        self._piece = _FIRST_PIECE
        return True


def is_utf_16(head: bytes) -> bool:
    """Whether data begins with the mark of UTF-16, and is text in it."""
    if not head.startswith(_UTF_16_MARKS):
        return False
    try:
        text = codecs.getincrementaldecoder("utf-16")().decode(head)
    except UnicodeDecodeError:
        return False
    return "\0" not in text


class Recoded:
    """Text in UTF-16, with its mark, as UTF-8 without one; what makes no sense becomes U+FFFD."""

    def __init__(self, feed: ByteFeed) -> None:
        self._feed = feed
        self._decoder = codecs.getincrementaldecoder("utf-16")("replace")
        self._left = b""

    def read(self, most: int) -> bytes:
        is_end = False
        while not self._left and not is_end:
            data = self._feed.read(CHUNK)
            is_end = not data
            self._left = self._decoder.decode(data, is_end).encode()
        out, self._left = self._left[:most], self._left[most:]
        return out
