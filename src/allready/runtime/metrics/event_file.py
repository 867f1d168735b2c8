"""The event log of a rank: JSON lines in a file of bounded size."""

import os
from pathlib import Path

import msgspec
from msgspec.structs import replace

from allready.model import LogBegin, LogLine
from allready.redaction import masked_all

MAX_BYTES = 16 << 20
"""Of both files of a rank."""


class EventFile:
    """Appends lines; a file that is full becomes the older one, in whose place the one before is.

    Every line is with the kernel when `write` returns, so the death of the process loses none.
    """

    def __init__(self, folder: Path, begin: LogBegin, *, max_bytes: int = MAX_BYTES) -> None:
        self.path = folder / f"events-rank{begin.rank}.jsonl"
        self.older = folder / f"events-rank{begin.rank}.older.jsonl"
        self._begin = begin
        self._most_bytes = max_bytes // 2
        self._file: int | None = None
        self._num_bytes = 0

    def write(self, line: LogLine) -> None:
        """One event, without what looks like a secret."""
        text = msgspec.json.encode(masked_all(line)) + b"\n"
        if self._file is not None and self._num_bytes + len(text) > self._most_bytes:
            self.close()
            self.path.replace(self.older)
        if self._file is None:
            try:
                self._open(line.time_s)
            except OSError:
                self.close()  # it has no first line yet
                raise
        self._append(text)

    def close(self) -> None:
        """No more lines for now."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self, time_s: float) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._num_bytes = os.fstat(self._file).st_size
        if self._num_bytes and os.pread(self._file, 1, self._num_bytes - 1) != b"\n":
            self._append(b"\n")  # a process was ended in the middle of its last line
        self._append(msgspec.json.encode(replace(self._begin, time_s=time_s)) + b"\n")

    def _append(self, text: bytes) -> None:
        assert self._file is not None
        left = memoryview(text)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:  # a full disk: half a line would take the next one with it
            os.ftruncate(self._file, self._num_bytes)
            raise
        self._num_bytes += len(text)
