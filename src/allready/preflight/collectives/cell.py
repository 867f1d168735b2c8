"""The progress cell: a page of shared memory in which a rank says what it is about to do.

Writing costs under a microsecond and needs nobody's help, so it is done before every operation; the agent reads it
even while the rank is stuck or stopped.  Standard library only: the rank process uses it before it imports torch.
"""

import mmap
import os
import struct

_CELL = struct.Struct("<QQqqQ")  # version, size_bytes, entered, done, version again
SIZE_BYTES = mmap.PAGESIZE


def create(name: str) -> int:
    """An anonymous shared file of one page, for a cell; returns its descriptor."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    os.ftruncate(fd, SIZE_BYTES)
    return fd


class CellWriter:
    """The rank's side."""

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, SIZE_BYTES)
        self._version = 0

    def write(self, size_bytes: int, entered: int, done: int) -> None:
        """Say where this rank is; see `wire.Position`."""
        self._version += 1
        _CELL.pack_into(self._memory, 0, self._version, size_bytes, entered, done, self._version)


class CellReader:
    """The agent's side."""

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, SIZE_BYTES, prot=mmap.PROT_READ)

    def read(self) -> tuple[int, int, int] | None:
        """(size_bytes, entered, done), or None before the first write or when a write is under way."""
        for _ in range(4):
            version, size_bytes, entered, done, again = _CELL.unpack_from(self._memory, 0)
            if version and version == again:
                return size_bytes, entered, done
        return None

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()
