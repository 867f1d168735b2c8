"""Regular files of this machine, read without ever blocking on a pipe or a device."""

import os
import stat
from typing import Self

from allready.errors import FactUnavailable


def opened(path: str) -> "FileReader":
    """A regular file, opened without ever blocking on a pipe or a device."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise FactUnavailable("{path}: {error}", path=path, error=words_of(error)) from error
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        raise FactUnavailable("{path}: a directory" if stat.S_ISDIR(mode) else "{path}: not a regular file", path=path)
    return FileReader(fd, path)


class FileReader:
    """Read bytes of an open file; errors become FactUnavailable; closes at the end of the with block."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def read(self, limit_bytes: int) -> bytes:
        parts: list[bytes] = []
        left = limit_bytes
        try:
            while left > 0 and (part := os.read(self._fd, min(left, 2**18))):
                parts.append(part)
                left -= len(part)
        except OSError as error:
            raise FactUnavailable("{path}: {error}", path=self._path, error=words_of(error)) from error
        return b"".join(parts)


def words_of(error: Exception) -> str:
    """The system's text of an error."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
