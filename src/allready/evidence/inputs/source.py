"""One stream to read, with what is known of it before."""

import io
import os
from collections.abc import Callable, Sequence
from typing import BinaryIO

from msgspec import Struct

from allready.evidence.inputs.envelopes import Envelope
from allready.evidence.inputs.intake import Guarded
from allready.model.finding import Phrase

HEAD_BYTES = 1 << 16  # the kind of a source is found from so much of it
BUFFER_BYTES = 1 << 20


class Source(Struct, kw_only=True):
    """One stream.  It can be opened once, and only until the next one of its file is asked for.

    label: as the user gave it, `archive!member` inside an archive, "-" for standard input.  Names are hints only.
    size_bytes: None for a pipe and for what is compressed without saying how long it was.
    path: a plain file on disk, which may also be read in parts; else None.  file: the same, open.
    envelopes: what was around its lines, the outermost first.
    """

    label: str
    head: bytes
    make: Callable[[], Guarded]
    size_bytes: int | None = None
    mtime_s: float | None = None
    path: str | None = None
    file: io.FileIO | None = None
    envelopes: Sequence[Envelope] = ()
    _raw: Guarded | None = None

    def open(self) -> BinaryIO:
        """The content from its first byte.  Damage ends it early; `problem` tells of it afterwards."""
        assert self._raw is None, "a source is read once"
        self._raw = self.make()
        return io.BufferedReader(self._raw, BUFFER_BYTES)

    def tail(self, most: int) -> bytes:
        """The last bytes of a plain file, as long as it was when it was opened; what is read next stays the same."""
        if self.file is None or self.size_bytes is None:
            return b""
        try:
            most = min(most, self.size_bytes)
            return os.pread(self.file.fileno(), most, self.size_bytes - most)
        except (OSError, ValueError):  # it cannot be read, or is closed by now
            return b""

    @property
    def has_holes(self) -> bool:
        """Whether parts of a plain file were never written."""
        if self.file is None or self.size_bytes is None:
            return False
        try:
            number = self.file.fileno()
            at = os.lseek(number, 0, os.SEEK_CUR)
            hole = os.lseek(number, 0, os.SEEK_HOLE)
            os.lseek(number, at, os.SEEK_SET)
        except (OSError, ValueError):  # the file system does not tell, or it is closed
            return False
        return hole < self.size_bytes

    @property
    def problem(self) -> Phrase | None:
        """Why it ended early, after reading."""
        return self._raw.problem if self._raw is not None else None

    @property
    def num_read(self) -> int:
        """Bytes read so far, unpacked."""
        return self._raw.num_bytes if self._raw is not None else 0
