"""A cell: shared memory that one process writes and another reads, also while the writer is stopped or stuck.

    word   0 magic   1 version   2 pid of the writer   3 heartbeat (monotonic nanoseconds)
           4 sequence (odd while the payload changes)   5 length   6 CRC-32   7 to 31: of those who use the cell
    byte   256 to the end: the payload

Writing takes a microsecond.  The heartbeat stands by itself, so that it is known even when the writer was stopped in
the middle of a payload.  The writer maps the file; the reader uses pread and pwrite, so that a file that is cut short
cannot kill it.  Imports next to nothing, because a rank has it before it imports anything else.
"""

import mmap
import os
import time
import zlib

SIZE_BYTES = 8192
HEADER_BYTES = 256
PAYLOAD_BYTES = SIZE_BYTES - HEADER_BYTES
NUM_WORDS = HEADER_BYTES // 8
MAGIC = int.from_bytes(b"allready", "little")
VERSION = 2

_MAGIC, _VERSION, _PID, _HEARTBEAT, _SEQUENCE, _LENGTH, _CRC = range(7)
_WORD_BYTES = 8
_TRIES = 8
_MAX_PID = 1 << 22
_AHEAD_NS = 1_000_000_000


def anonymous_cell(name: str) -> int:
    """A cell without a path, for a child; returns its descriptor, which the caller closes."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    os.ftruncate(fd, SIZE_BYTES)
    return fd


class CellWriter:
    """The side that writes, from one thread.  Words from 7 on are cleared."""

    def __init__(self, fd: int, *, num_kept: int = 0) -> None:
        """Take over an open file of SIZE_BYTES; the descriptor may be closed afterwards.

        `num_kept`: so many words at the end stay, because the other side has written them.
        """
        self._memory = mmap.mmap(fd, SIZE_BYTES)
        self._bytes = memoryview(self._memory)
        self._words = self._bytes[:HEADER_BYTES].cast("Q")
        self._sequence = 0
        self._words[_MAGIC] = 0
        for word in range(_SEQUENCE, NUM_WORDS - num_kept):
            self._words[word] = 0
        self._words[_VERSION] = VERSION
        self._words[_PID] = os.getpid()
        self.heartbeat()
        self._words[_MAGIC] = MAGIC

    def heartbeat(self) -> None:
        """Show that this process runs, and that its interpreter lets this thread run."""
        self._words[_HEARTBEAT] = time.monotonic_ns()

    def write(self, payload: bytes) -> None:
        """Replace the payload.

        Raises:
            ValueError: it is longer than PAYLOAD_BYTES; the old one stands.
        """
        if len(payload) > PAYLOAD_BYTES:
            raise ValueError(f"a payload of {len(payload)} bytes, more than {PAYLOAD_BYTES}")
        words = self._words
        words[_SEQUENCE] = self._sequence + 1
        self._bytes[HEADER_BYTES : HEADER_BYTES + len(payload)] = payload
        words[_LENGTH] = len(payload)
        words[_CRC] = zlib.crc32(payload)
        self._sequence += 2
        words[_SEQUENCE] = self._sequence

    def close(self) -> None:
        self._words.release()
        self._bytes.release()
        self._memory.close()


class CellReader:
    """The other side.  `problem` says why there is nothing to read.  Not for several threads at once."""

    def __init__(self, fd: int = -1) -> None:
        """Read an open cell; the descriptor belongs to this object."""
        self._fd = fd
        self._payload = b""
        self.pid = 0
        self.heartbeat_ns = 0
        self.problem: str | None = None

    def read(self) -> bytes | None:
        """The newest whole payload, b"" before the first; None where there is no cell.  Never raises.

        `pid` and `heartbeat_ns` are the writer's.
        """
        words = None
        for _ in range(_TRIES):
            data = self._read_all()
            if data is None:
                return None
            words = memoryview(data)[:HEADER_BYTES].cast("Q")
            if words[_MAGIC] != MAGIC or words[_VERSION] != VERSION:
                self.problem = "the file is no cell of this version"
                return None
            if words[_HEARTBEAT] <= time.monotonic_ns() + _AHEAD_NS and self._take(data, words):
                break
        assert words is not None
        if not 0 < words[_PID] <= _MAX_PID or words[_HEARTBEAT] > time.monotonic_ns() + _AHEAD_NS:
            self.problem = "the cell has been damaged"
            return None
        self.problem = None
        self.pid, self.heartbeat_ns = words[_PID], words[_HEARTBEAT]
        return self._payload

    def words(self) -> "memoryview[int] | None":
        data = self._read_all()
        if data is None:
            return None
        words = memoryview(data)[:HEADER_BYTES].cast("Q")
        return words if words[_MAGIC] == MAGIC else None

    def put_word(self, word: int, value: int) -> None:
        """Write one word of the other side's."""
        os.pwrite(self._fd, value.to_bytes(_WORD_BYTES, "little"), word * _WORD_BYTES)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _open(self) -> bool:
        """Try to open the cell, where that has not been done; sets `problem`."""
        return False

    def _read_all(self) -> bytes | None:
        if self._fd < 0 and not self._open():
            return None
        try:
            data = os.pread(self._fd, SIZE_BYTES, 0)
        except OSError as error:
            self.problem = f"the cell cannot be read: {error.strerror}"
            return None
        if len(data) != SIZE_BYTES:
            self.problem = f"the cell has {len(data)} bytes instead of {SIZE_BYTES}"
            return None
        return data

    def _take(self, data: bytes, words: "memoryview[int]") -> bool:
        """Keep the payload if it is whole; else the one before stands."""
        length = words[_LENGTH]
        if words[_SEQUENCE] % 2 or length > PAYLOAD_BYTES:
            return False
        payload = data[HEADER_BYTES : HEADER_BYTES + length]
        if zlib.crc32(payload) != words[_CRC]:
            return False
        self._payload = payload
        return True
