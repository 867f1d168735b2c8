"""The last lines of a rank's logs."""

import glob
import os
import stat
from pathlib import Path

TAIL_BYTES = 65536
MAX_FILES = 64


def tail(path: Path | str | None, *, most_bytes: int = TAIL_BYTES, start: int = 0, stop: int | None = None) -> str:
    """The end of a regular file, undecodable bytes replaced, without a line that is cut in front; "" if there is none.

    `start`, `stop`: the part of the file that is meant; by default all of it.
    """
    if path is None:
        return ""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            return ""
        end = info.st_size if stop is None else min(stop, info.st_size)
        begin = max(start, end - most_bytes, 0)
        data = os.pread(fd, max(0, end - begin), begin)
    except OSError:
        return ""
    finally:
        os.close(fd)
    if begin > start:
        cut, mark, rest = data.partition(b"\n")
        data = rest if mark else cut
    return data.decode(errors="replace")


def newest(pattern: str, *, since_s: float = 0.0) -> Path | None:
    """The file of a pattern that was written last; None when there is none, or none since then (wall clock)."""
    if not pattern:
        return None
    best: tuple[float, str] | None = None
    for count, path in enumerate(glob.iglob(pattern)):  # noqa: PTH207 - pathlib's does not take absolute patterns
        if count >= MAX_FILES:
            break
        try:
            info = os.stat(path)  # noqa: PTH116
        except OSError:
            continue
        if stat.S_ISREG(info.st_mode) and info.st_mtime >= since_s:
            best = max(best or (0.0, ""), (info.st_mtime, path))
    return Path(best[1]) if best else None


def size_of(path: Path | str) -> int:
    """Bytes of a file; 0 when it is not there."""
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except OSError:
        return 0


def modified_s(path: Path) -> float:
    """When a file was written last (wall clock); 0 when it is not there."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
