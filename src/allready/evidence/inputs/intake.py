"""Bytes in order with a peek ahead, and the stream that readers get."""

import errno
import io
import os
from collections.abc import Callable

from allready.evidence.inputs.codecs import CHUNK, ByteFeed
from allready.evidence.inputs.limits import Budget, DamagedError, TooMuchError
from allready.model.fill import phrase_of, said
from allready.model.finding import Phrase

_MIN_HOLE_BYTES = 1 << 20
CUT = "it ends in the middle of a member: it was cut"


class Intake:
    """A feed that can be peeked into and skipped."""

    def __init__(self, feed: ByteFeed) -> None:
        self._feed = feed
        self._ahead = b""
        self.position = 0

    def peek(self, most: int) -> bytes:
        """The next bytes, which stay; fewer than `most` only at the end (or at damage, which the next read meets)."""
        parts, have = [self._ahead] if self._ahead else [], len(self._ahead)
        while have < most:
            try:
                more = self._feed.read(most - have)
            except (DamagedError, TooMuchError, OSError):
                if not have:
                    raise
                break
            if not more:
                break
            parts.append(more)
            have += len(more)
        self._ahead = b"".join(parts)
        return self._ahead[:most]

    def read(self, most: int) -> bytes:
        if self._ahead:
            out, self._ahead = self._ahead[:most], self._ahead[most:]
        else:
            out = self._feed.read(most)
        self.position += len(out)
        return out

    def readinto(self, buffer: memoryview) -> int:
        """The next bytes, straight into `buffer` where the feed can; how many, 0 at the end."""
        fill: Callable[[memoryview], int] | None = getattr(self._feed, "readinto", None)
        if self._ahead or fill is None:
            out = self.read(len(buffer))
            buffer[: len(out)] = out
            return len(out)
        num = fill(buffer)
        self.position += num
        return num

    def read_exactly(self, num_bytes: int) -> bytes:
        """`num_bytes` bytes."""
        parts, left = [], num_bytes
        while left:
            part = self.read(left)
            if not part:
                raise DamagedError(CUT)
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def unread(self, data: bytes) -> None:
        """Put `data` back in front."""
        self._ahead = data + self._ahead
        self.position -= len(data)

    def pass_holes(self) -> None:
        """Let the feed pass over holes of a file on disk, where it is one: only what is no archive may lose zeros."""
        passes: Callable[[], None] | None = getattr(self._feed, "pass_holes", None)
        if passes is not None:
            passes()

    def skip(self, num_bytes: int) -> None:
        """Pass over bytes, by seeking where the feed can."""
        passed = min(num_bytes, len(self._ahead))
        self._ahead = self._ahead[passed:]
        self.position += passed
        left = num_bytes - passed
        seek: Callable[[int], bool] | None = getattr(self._feed, "seek_over", None)
        if left > CHUNK and seek is not None and seek(left):
            self.position += left
            return
        while left:
            part = self.read(min(left, CHUNK))
            if not part:
                raise DamagedError(CUT)
            left -= len(part)


class Part:
    """The next `size` bytes of an intake, as a feed."""

    def __init__(self, intake: Intake, size: int) -> None:
        self._intake = intake
        self.left = size

    def read(self, most: int) -> bytes:
        if not self.left:
            return b""
        out = self._intake.read(min(most, self.left))
        if not out:
            raise DamagedError(CUT)
        self.left -= len(out)
        return out

    def finish(self) -> None:
        """Pass over what was not read."""
        self._intake.skip(self.left)
        self.left = 0


class FileFeed:
    """A file that is open, up to the size it had then: one that grows has an end, one that shrinks too."""

    def __init__(self, file: io.FileIO, size: int | None, budget: Budget, took: Callable[[int], None]) -> None:
        self._file = file
        self._left = size
        self._budget = budget
        self._took = took
        self._passes_holes = False

    def pass_holes(self) -> None:
        """From now on pass over what was never written: a log that was cut while its writer went on begins so, and
        a hundred gigabytes of nothing take minutes to read.  A zero stays where one was."""
        self._passes_holes = True

    def read(self, most: int) -> bytes:
        self._pass_hole()
        if self._left is not None:
            most = min(most, self._left)
            if not most:
                return b""
        out = self._file.read(most)
        if not out:
            if out is None:
                raise OSError("it would block")
            if self._left:
                raise DamagedError("it became {num} bytes shorter while it was read", num=f"{self._left:,}")
            return b""
        self._count(len(out))
        return out

    def readinto(self, buffer: memoryview) -> int:
        self._pass_hole()
        if self._left is not None:
            buffer = buffer[: self._left]
        num = self._file.readinto(buffer) if len(buffer) else 0
        if num is None:
            raise OSError("it would block")
        if not num and self._left:
            raise DamagedError("it became {num} bytes shorter while it was read", num=f"{self._left:,}")
        self._count(num)
        return num

    def seek_over(self, num_bytes: int) -> bool:
        """Pass over bytes; False where it cannot, or where there are not so many."""
        if self._left is None or num_bytes > self._left:
            return False
        self._file.seek(num_bytes, io.SEEK_CUR)
        self._count(num_bytes)
        return True

    def _pass_hole(self) -> None:
        if not self._passes_holes or not self._left:
            return
        number = self._file.fileno()
        at = self._file.tell()
        try:
            end = os.lseek(number, at, os.SEEK_DATA)
        except OSError as error:  # ENXIO: nothing but a hole follows; else a file system that does not tell
            self._passes_holes = error.errno == errno.ENXIO
            end = at + self._left if self._passes_holes else at
        num_bytes = min(end - at, self._left) - 1
        is_long = num_bytes >= _MIN_HOLE_BYTES
        os.lseek(number, at + num_bytes if is_long else at, os.SEEK_SET)
        if is_long:
            self._left -= num_bytes
            self._took(num_bytes)

    def _count(self, num_bytes: int) -> None:
        if self._left is not None:
            self._left -= num_bytes
        self._budget.took(num_bytes)
        self._took(num_bytes)


class Guarded(io.RawIOBase):
    """What readers read: damage is the end of the stream, and `problem` tells it."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self.num_bytes = 0
        self.problem: Phrase | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview | bytearray", /) -> int:  # type: ignore[override]
        if self.problem is not None:
            return 0
        try:
            num = self._intake.readinto(memoryview(buffer).cast("B"))
        except (DamagedError, TooMuchError) as error:
            self.problem = phrase_of(error)
            return 0
        except OSError as error:
            self.problem = said("cannot be read to its end: {error}", error=error.strerror or error)
            return 0
        self.num_bytes += num
        return num
