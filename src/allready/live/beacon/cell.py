"""The progress cell: two pages that a rank and its agent share.

The rank's beacon writes a beat (monotonic nanoseconds) five times a second and, beside it, what the rank is about as
JSON; the agent reads both even while the rank is stopped, and writes the number of its newest request.  The beat stands
by itself, so that it is known even when the rank was stopped in the middle of a payload.

    word   0 magic   1 version   2 pid   3 beat   4 sequence (odd while the payload changes)   5 length   6 CRC-32
           7 thread that beats, 0 for none   8 ring answered   9 dump answered   10 stacks answered
           11 a dump is being made   16 ring requested   17 dump requested   18 stacks requested
    byte   256 to the end: the payload

The rank maps the file, whose room is reserved first: a full /dev/shm is an error at the start and never a SIGBUS in the
middle of a training step.  The agent uses pread and pwrite: a file that somebody cuts short cannot kill it.  Imports
next to nothing, because it stands before the first line of every script.
"""

import mmap
import os
import time
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from allready.live.beacon.state import CellState

SIZE_BYTES = 8192
HEADER_BYTES = 256
PAYLOAD_BYTES = SIZE_BYTES - HEADER_BYTES
MAGIC = int.from_bytes(b"allready", "little")
VERSION = 2

KINDS = ("ring", "dump", "stacks")
"""What can be asked for."""

_MAGIC, _VERSION, _PID, _BEAT, _SEQUENCE, _LENGTH, _CRC, _THREAD = range(8)
_MAKES_DUMP = 11
_DONE = {"ring": 8, "dump": 9, "stacks": 10}
_WANTED = {"ring": 16, "dump": 17, "stacks": 18}
_WORD_BYTES = 8
_TRIES = 8
_LARGEST_PID = 1 << 22
_AHEAD_NS = 1_000_000_000


class CellWriter:
    """The rank's side.  One thread writes."""

    def __init__(self, path: str) -> None:
        """Make the cell, or take over the one that is there.

        Raises:
            OSError: it cannot be made, or there is no room for it.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.ftruncate(fd, SIZE_BYTES)
            os.posix_fallocate(fd, 0, SIZE_BYTES)
            self._memory = mmap.mmap(fd, SIZE_BYTES)
        finally:
            os.close(fd)
        self._bytes = memoryview(self._memory)
        self._words = self._bytes[:HEADER_BYTES].cast("Q")
        self._sequence = 0
        self._words[_MAGIC] = 0
        for word in (_SEQUENCE, _LENGTH, _CRC, _THREAD, _MAKES_DUMP, *_DONE.values()):
            self._words[word] = 0
        self._words[_VERSION] = VERSION
        self._words[_PID] = os.getpid()
        self.beat()
        self._words[_MAGIC] = MAGIC

    def beat(self) -> None:
        """Say that this process runs and that its interpreter lets a thread of it run."""
        self._words[_BEAT] = time.monotonic_ns()

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

    def say_thread(self, native_id: int) -> None:
        """Which thread beats and writes stacks; 0 when there is none that could."""
        self._words[_THREAD] = native_id

    def say_makes_dump(self, makes: bool) -> None:
        """Whether a thread of ours is at a dump, for which torch imports modules."""
        self._words[_MAKES_DUMP] = makes

    def wanted(self) -> tuple[int, int, int]:
        """Numbers of the requests that are not answered yet, in the order of KINDS; 0 where there is none."""
        words = self._words
        ring, dump, stacks = words[16], words[17], words[18]
        return ring if ring != words[8] else 0, dump if dump != words[9] else 0, stacks if stacks != words[10] else 0

    def answer(self, kind: str, number: int) -> None:
        """What request `number` asked for has been written, or there is nothing to write.

        Args:
            kind: one of KINDS.
            number: as `wanted` gave it.
        """
        self._words[_DONE[kind]] = number

    def close(self) -> None:
        """Give the memory back; the file stays."""
        self._words.release()
        self._bytes.release()
        self._memory.close()


class CellReader:
    """The agent's side.  `problem` says why the last `read` gave None.  Not for several threads at once."""

    def __init__(self, path: "Path") -> None:
        """Nothing is opened before the first `read`: the rank makes its cell when it starts."""
        self._path = path
        self._fd = -1
        self._payload = b""
        self._number = 0
        self.problem: str | None = "the rank has not made its cell yet"

    def read(self) -> "CellState | None":
        """What the rank says now; None where there is no cell yet, or what is there is none.  Never raises."""
        from allready.live.beacon.state import decode

        data = words = None
        for _ in range(_TRIES):
            data = self._read_all()
            if data is None:
                return None
            words = memoryview(data)[:HEADER_BYTES].cast("Q")
            if words[_MAGIC] != MAGIC or words[_VERSION] != VERSION:
                self.problem = "the file is no cell of this version"
                return None
            if words[_BEAT] <= time.monotonic_ns() + _AHEAD_NS and self._take(data, words):
                break
        assert words is not None
        if not 0 < words[_PID] <= _LARGEST_PID or words[_BEAT] > time.monotonic_ns() + _AHEAD_NS:
            self.problem = "the cell has been damaged"
            return None
        self.problem = None
        beat_age_s = max(0.0, (time.monotonic_ns() - words[_BEAT]) / 1e9)
        return decode(self._payload, pid=words[_PID], beat_age_s=beat_age_s)

    def request(self, *kinds: str) -> int | None:
        """Ask for fresh records; the request's number, None when there is no cell to write to.

        Args:
            kinds: of KINDS.  A dump is written after a ring, and only where that is asked for too.
        """
        if self._fd < 0 and not self._open():
            return None
        words = self._words()
        if words is None or words[_MAGIC] != MAGIC:
            return None
        told = [words[w] for w in (*_DONE.values(), *_WANTED.values())]
        known = max(self._number, *(w for w in told if w < 1 << 62), 0)
        self._number = known + 1
        number = self._number.to_bytes(_WORD_BYTES, "little")
        try:
            for kind in sorted(kinds, key=KINDS.index, reverse=True):  # the dump before the ring that it goes with
                os.pwrite(self._fd, number, _WANTED[kind] * _WORD_BYTES)
        except OSError as error:
            self.problem = f"the cell cannot be written: {error.strerror}"
            return None
        return self._number

    def is_answered(self, number: int, kind: str) -> bool:
        """Whether the rank has answered request `number` as far as this kind goes."""
        words = self._words()
        return words is not None and words[_DONE[kind]] == number

    def makes_dump(self) -> bool:
        """Whether the beacon is at a dump."""
        words = self._words()
        return words is not None and words[_MAGIC] == MAGIC and words[_MAKES_DUMP] == 1

    def beat(self) -> tuple[float, int] | None:
        """How old the last beat is in seconds, and the thread that beats (0: none); None where there is no cell."""
        words = self._words()
        if words is None or words[_MAGIC] != MAGIC:
            return None
        return max(0.0, (time.monotonic_ns() - words[_BEAT]) / 1e9), words[_THREAD]

    def close(self) -> None:
        """Give the descriptor back; may be called again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> bool:
        import stat

        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            self.problem = "the rank has not made its cell yet"
            return False
        except OSError as error:
            self.problem = f"the cell cannot be opened: {error.strerror}"
            return False
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
            os.close(fd)
            self.problem = "the cell is not a file of this user"
            return False
        self._fd = fd
        return True

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

    def _words(self) -> "memoryview[int] | None":
        data = self._read_all()
        return None if data is None else memoryview(data)[:HEADER_BYTES].cast("Q")

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
