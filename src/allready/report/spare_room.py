"""A report that can still be rewritten when the disk is full: its room was taken while there was some."""

import contextlib
import errno
import logging
import os
import secrets
from pathlib import Path
from typing import Self

from allready.report.json_report import write_atomic

log = logging.getLogger(__name__)

NUM_SPARES = 3
"""So many times the report can be rewritten on a full disk: the verdict, a better one, the end of the job."""
MIN_SPARE_BYTES = 64 << 10
"""Less is kept only where so much is not free: twice the report that was just written."""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of a file system that may have room later."""


class SpareRoom:
    """Context manager; `write` as often as there is news.

    Holds files without a name (`O_TMPFILE`) that have their blocks already; the kernel frees them with this process.
    Where the file system has no such files, a full disk costs the file as before.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._spares: list[tuple[int, int]] = []  # descriptor, its bytes
        self._tries = True
        self.problem = ""
        """Why the file that `write` should have written last is not there; empty where it is."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the room back.  `write` may still be called."""
        while self._spares:
            os.close(self._spares.pop()[0])
        self._tries = False

    def write(self, data: bytes, path: Path | None = None) -> bool:
        """Write the file as `write_atomic` does, on a full disk into the spare room.

        On a full disk an older one is taken away, which is no longer true; then its room may be enough.  A folder that
        was taken away is made again.

        Args:
            path: where it stands now, if that has changed.
        """
        if path is not None and path != self._path:
            self._path = path
        try:
            try:
                write_atomic(self._path, data)
            except FileNotFoundError:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(self._path, data)
        except OSError as error:
            self.problem = "" if error.errno in FULL and self._write_on_full(data) else error.strerror or str(error)
            return not self.problem
        self.problem = ""
        self._keep_spares(2 * len(data))
        return True

    def _write_on_full(self, data: bytes) -> bool:
        if self._write_into_spare(data):
            return True
        with contextlib.suppress(OSError):
            self._path.unlink()
            write_atomic(self._path, data)
            return True
        return False

    def _keep_spares(self, least: int) -> None:
        for spare in [s for s in self._spares if s[1] < least]:
            os.close(spare[0])
            self._spares.remove(spare)
        sizes = [max(MIN_SPARE_BYTES, least), *([least] if least < MIN_SPARE_BYTES else [])]
        while self._tries and sizes and len(self._spares) < NUM_SPARES:
            try:
                self._spares.append((_nameless(self._path.parent, sizes[0]), sizes[0]))
            except OSError as error:
                self._tries = error.errno in FULL  # else this file system cannot
                del sizes[0]

    def _write_into_spare(self, data: bytes) -> bool:
        while self._spares:
            descriptor, _ = self._spares.pop()
            draft = self._path.parent / f".allready-{os.getpid()}-{secrets.token_hex(6)}.tmp"
            try:
                view, done = memoryview(data), 0
                while done < len(view):
                    done += os.pwrite(descriptor, view[done:], done)
                os.ftruncate(descriptor, len(data))
                os.fsync(descriptor)
                _name(descriptor, draft)
                draft.replace(self._path)
            except OSError as error:
                log.debug("spare room of %s: %s", self._path, error)
                with contextlib.suppress(OSError):
                    draft.unlink()
            else:
                return True
            finally:
                os.close(descriptor)
        return False


def _nameless(folder: Path, num_bytes: int) -> int:
    """A file without a name in this folder, with its blocks.

    Raises:
        OSError: no room, or a file system without such files.
    """
    descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666)
    try:
        os.posix_fallocate(descriptor, 0, num_bytes)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _name(descriptor: int, path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Only with a descriptor of a folder does Python call linkat, which follows the link to the file without a name.
        os.link(f"/proc/self/fd/{descriptor}", path.name, dst_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)
