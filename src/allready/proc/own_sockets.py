"""The sockets of this process, duplicates of them, and what tells one from a later one of the same number."""

import contextlib
import errno
import fcntl
import os
import socket
import stat
from pathlib import Path

Sockets = dict[int, tuple[int, int]]
"""By descriptor, each with what tells it from a later one of the same number."""


def sockets() -> Sockets:
    """This process's."""
    found = {}
    for place in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            identity = identity_of(int(place.name))
            if identity is not None:
                found[int(place.name)] = identity
    return found


def ends(fd: int) -> tuple[int, int]:
    """The ports of a TCP socket, here and there; 0 where there is none."""
    local = other = 0
    with contextlib.suppress(OSError), _duplicate(fd) as copy:
        if copy.family in {socket.AF_INET, socket.AF_INET6} and copy.type == socket.SOCK_STREAM:
            local = copy.getsockname()[1]
            with contextlib.suppress(OSError):
                other = copy.getpeername()[1]
    return local, other


def closes_on_exec(fd: int) -> bool:
    """Whether a program that this process starts does not get it; also of what is no longer there."""
    try:
        return bool(fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC)
    except OSError:
        return True


def tap(fd: int, identity: tuple[int, int]) -> socket.socket:
    """A duplicate of this connection.

    Raises:
        OSError: it is closed.
    """
    copy = _duplicate(fd)
    if identity_of(copy.fileno()) == identity:
        return copy
    copy.close()
    raise OSError(errno.EBADF, "the connection is closed")


def _duplicate(fd: int) -> socket.socket:
    """Raises OSError for what is no socket, or no longer there."""
    copy = os.dup(fd)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise


def identity_of(fd: int) -> tuple[int, int] | None:
    """Of the socket that this descriptor is now; None: it is none."""
    status = os.fstat(fd)
    return (status.st_dev, status.st_ino) if stat.S_ISSOCK(status.st_mode) else None
