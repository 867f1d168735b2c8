"""The two files that `faulthandler` writes by their descriptors: stacks on the signal, and those of a crash.

A script may close descriptors that are not its own, and get their numbers for files of its own.  So these lie as high
as is reasonable, and are checked again and again: what is no longer ours is never written to.
"""

import faulthandler
import fcntl
import os
import resource

from allready.live.beacon import names

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
_HIGH = 1000
_ROOM = 8


class _File:
    """An open file, as long as the script leaves it open."""

    def __init__(self, path: str) -> None:
        low = os.open(path, _APPEND, 0o600)
        try:
            self.fd = _raised(low)
            info = os.fstat(low)
            self._id = info.st_dev, info.st_ino
        finally:
            if self.fd != low:
                os.close(low)

    @property
    def is_ours(self) -> bool:
        try:
            info = os.fstat(self.fd)
        except OSError:
            return False
        return (info.st_dev, info.st_ino) == self._id


def _raised(fd: int) -> int:
    """A copy with a high number, where the limit leaves room for one; else the same."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    least = _HIGH if soft == resource.RLIM_INFINITY else min(_HIGH, soft - _ROOM)
    if least <= fd:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least)
    except OSError:
        return fd


def append(path: str, data: bytes) -> None:
    """Write at the end of a file of ours, which is opened for it."""
    fd = os.open(path, _APPEND, 0o600)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
    finally:
        os.close(fd)


def dump(path: str) -> None:
    """All stacks, as this thread can have them where there is no GIL to hold."""
    fd = os.open(path, _APPEND, 0o600)
    try:
        faulthandler.dump_traceback(file=fd, all_threads=True)
    finally:
        os.close(fd)


class FaultFiles:
    """Registers both handlers.  `check` often, `forget` in a forked child."""

    def __init__(self, rank_dir: str) -> None:
        self.stacks = _File(f"{rank_dir}/{names.STACKS}")
        faulthandler.register(names.STACK_SIGNAL, file=self.stacks.fd, all_threads=True, chain=False)
        self._crash: _File | None = None
        if not faulthandler.is_enabled():  # by PYTHONFAULTHANDLER: then it writes to stderr, as the user wants
            self._crash = _File(f"{rank_dir}/{names.CRASH}")
            faulthandler.enable(file=self._crash.fd)
        self._is_registered = True

    def check(self) -> int:
        """Stop writing to what is no longer ours; the descriptor of the stacks, 0 where it is not."""
        if self._crash is not None and not self._crash.is_ours:
            self._crash = None
            faulthandler.disable()
        if self._is_registered and not self.stacks.is_ours:
            self._is_registered = False
            faulthandler.unregister(names.STACK_SIGNAL)
        return self.stacks.fd if self._is_registered else 0

    def forget(self) -> None:
        """Of a child's stacks that of the thread which gets the signal is enough, the main one: frames of others may
        change while they are read."""
        if self.check():
            faulthandler.register(names.STACK_SIGNAL, file=self.stacks.fd, all_threads=False, chain=False)
