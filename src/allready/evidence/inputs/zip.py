"""Members of a zip archive from a stream: by their local headers, in order, without its directory at the end.

So a zip that was cut gives what is there, one from a pipe needs no seeking, and a directory of millions of entries is
never held in memory.
"""

import struct
from collections.abc import Iterator

from allready.evidence.inputs.codecs import CHUNK, ByteFeed, Inflate
from allready.evidence.inputs.intake import CUT, Intake, Part
from allready.evidence.inputs.limits import Budget, DamagedError
from allready.evidence.inputs.tar import ArchiveMember
from allready.model.fill import said

LOCAL = b"PK\x03\x04"
_DESCRIPTOR = b"PK\x07\x08"
_NOT_MEMBERS = (b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x08")
_FIELDS = struct.Struct("<4sHHHHHIIIHH")
_ENCRYPTED, _SIZES_FOLLOW, _STRONG = 1, 8, 1 << 6
_STORED = 0
_METHODS = {8: "deflate", 12: "bzip2", 93: "zstd", 95: "xz"}
_UNKNOWN_32 = 0xFFFFFFFF
_MAX_END = 28  # a descriptor with long sizes and the mark of what follows


def is_zip(head: bytes) -> bool:
    """It begins with a member (an empty zip has none and is nothing)."""
    return head.startswith(LOCAL)


def is_checkpoint(head: bytes) -> bool:
    """A file of torch.save: a zip whose first member is the pickle."""
    if not is_zip(head) or len(head) < _FIELDS.size:
        return False
    length = _FIELDS.unpack_from(head)[9]
    return head[_FIELDS.size : _FIELDS.size + length].endswith((b"/data.pkl", b"/.format_version", b"/byteorder"))


class _Until(Part):
    """A member of unknown size as it is stored: it ends where a descriptor tells exactly the size so far."""

    def __init__(self, intake: Intake) -> None:
        super().__init__(intake, 0)
        self._given = 0
        self._ended = False

    def read(self, most: int) -> bytes:
        if self._ended:
            return b""
        ahead = self._intake.peek(CHUNK + _MAX_END)
        if not ahead:
            raise DamagedError(CUT)
        at = ahead.find(_DESCRIPTOR)
        while at >= 0 and not self._is_end(ahead, at):
            at = ahead.find(_DESCRIPTOR, at + 1)
        if at == 0:
            self._ended = True
            return b""
        is_last = len(ahead) < CHUNK + _MAX_END
        take = at if at > 0 else len(ahead) if is_last else CHUNK  # a descriptor may begin in the last bytes
        out = self._intake.read(min(take, most))
        self._given += len(out)
        return out

    def _is_end(self, ahead: bytes, at: int) -> bool:
        size = self._given + at
        is_short = ahead[at + 8 : at + 12] == (size & _UNKNOWN_32).to_bytes(4, "little")
        is_long = ahead[at + 8 : at + 16] == size.to_bytes(8, "little")
        marks = (LOCAL, *_NOT_MEMBERS)
        return (is_short and ahead[at + 16 : at + 20] in marks) or (is_long and ahead[at + 24 : at + 28] in marks)

    def finish(self) -> None:
        while self.read(CHUNK):
            pass


class _Packed(Part):
    """A compressed member; what the decompressor took too much goes back."""

    def __init__(self, intake: Intake, codec: str, budget: Budget, size: int | None) -> None:
        super().__init__(intake, size or 0)
        self._inner: Part | None = None if size is None else Part(intake, size)
        feed: ByteFeed = intake if self._inner is None else self._inner
        self._inflate = Inflate(feed, codec, budget, single=True)

    def read(self, most: int) -> bytes:
        return self._inflate.read(most)

    def finish(self) -> None:
        if self._inner is not None:
            self._inner.finish()
            return
        while self._inflate.read(CHUNK):
            pass
        self._intake.unread(self._inflate.unused)


def members(intake: Intake, budget: Budget) -> Iterator[ArchiveMember]:
    """Every file in the archive, in order; each is gone when the next one is asked for."""
    is_open_ended = False
    while True:
        if is_open_ended:
            _skip_descriptor(intake)
        mark = intake.peek(4)
        if mark in _NOT_MEMBERS:
            return
        if mark != LOCAL:
            raise DamagedError("it was cut" if len(mark) < 4 else "a zip header is damaged; the rest was not read")
        fields = _FIELDS.unpack(intake.read_exactly(_FIELDS.size))
        _, _, flags, method, time, date, _, packed, size, len_name, len_extra = fields
        name = intake.read_exactly(len_name).decode("utf-8", "surrogateescape")
        packed, size = _long_sizes(intake.read_exactly(len_extra), packed, size)
        budget.member()
        is_open_ended = bool(flags & _SIZES_FOLLOW) and packed == 0
        if name.endswith("/"):
            if packed:
                intake.skip(packed)
            continue
        why_not = None
        if flags & (_ENCRYPTED | _STRONG):
            why_not = said("encrypted: unpack it with its password first")
        elif method != _STORED and method not in _METHODS:
            form = "packed with method {method} of zip, which is not known here: unpack it first"
            why_not = said(form, method=method)
        if why_not is not None:
            yield ArchiveMember(name=name, size_bytes=size, why_not=why_not)
            part: Part = _Until(intake) if is_open_ended else Part(intake, packed)
            part.finish()
            continue
        if method == _STORED:
            part = _Until(intake) if is_open_ended else Part(intake, packed)
        else:
            part = _Packed(intake, _METHODS[method], budget, None if is_open_ended else packed)
        yield ArchiveMember(
            name=name, size_bytes=None if is_open_ended else size, mtime_s=_time_of(date, time), content=part
        )
        part.finish()


def _long_sizes(extra: bytes, packed: int, size: int) -> tuple[int, int]:
    """Sizes above 4 GiB stand in the extra field 1, the unpacked one first."""
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<HH", extra)
        if kind == 1:
            numbers = [int.from_bytes(extra[i : i + 8], "little") for i in range(4, min(4 + length, len(extra)) - 7, 8)]
            if size == _UNKNOWN_32 and numbers:
                size = numbers.pop(0)
            if packed == _UNKNOWN_32 and numbers:
                packed = numbers.pop(0)
            break
        extra = extra[4 + length :]
    return packed, size


def _skip_descriptor(intake: Intake) -> None:
    """12 or 20 bytes with sizes of 32 or 64 bits, mostly with a mark of 4 in front: whichever a header follows."""
    ahead = intake.peek(28)
    for length in (16, 24, 12, 20):
        if ahead[length : length + 4] in {LOCAL, *_NOT_MEMBERS}:
            intake.read_exactly(length)
            return


def _time_of(date: int, time: int) -> float | None:
    """The member's local time as if it were UTC."""
    from datetime import UTC, datetime

    try:
        return datetime(
            1980 + (date >> 9), date >> 5 & 15, date & 31, time >> 11, time >> 5 & 63, (time & 31) * 2, tzinfo=UTC
        ).timestamp()
    except ValueError:
        return None
