"""The TCP connections of this process: which there are, and how those of a group are ended so that every operation in
it raises, on a thread of Gloo's that blocks as well.

Gloo closes a connection of which it reads the end, and gives every operation that waits for the peer an error, but none
to a send that it had to queue because a write failed or was not taken whole: its thread would wait for that until the
operation's own time-out.  So a connection is only ended for reading, on every rank by itself, and kept open where Gloo
has closed it: no write fails at either end before both have read their end.
"""

import contextlib
import os
import socket
import stat
from collections.abc import Iterable
from pathlib import Path

MAX_KEPT = 256
"""Connections; of more the oldest are closed."""

Sockets = dict[int, tuple[int, int]]
"""By descriptor, each with what tells it from a later one of the same number."""


class Ended:
    """Connections of groups that are over."""

    def __init__(self) -> None:
        self._kept: list[tuple[frozenset[int], socket.socket]] = []  # with the ranks of the group, oldest first

    def add(self, fd: int, identity: tuple[int, int], members: Iterable[int]) -> None:
        """End one.  What is kept already has been ended."""
        if any(_identity(kept.fileno()) == identity for _, kept in self._kept):
            return
        with contextlib.suppress(OSError):
            copy = socket.socket(fileno=os.dup(fd))
            if _identity(copy.fileno()) != identity:
                copy.close()
                return
            self._kept.append((frozenset(members), copy))
            copy.shutdown(socket.SHUT_RD)

    def close(self, members: Iterable[int] | None = None) -> None:
        """Once a group forms: those of groups whose ranks are all in it, which are out of everything before.

        None: all of them.
        """
        present = None if members is None else frozenset(members)
        old = max(0, len(self._kept) - MAX_KEPT)
        kept = self._kept
        self._kept = []
        for at, (ranks, connection) in enumerate(kept):
            if present is None or at < old or ranks <= present:
                with connection, contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            else:
                self._kept.append((ranks, connection))


def sockets() -> Sockets:
    """This process's."""
    found = {}
    for place in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            identity = _identity(int(place.name))
            if identity is not None:
                found[int(place.name)] = identity
    return found


def ends(fd: int) -> tuple[int, int]:
    """The ports of a TCP socket, here and there; 0 where there is none."""
    local = other = 0
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as copy:
        if copy.family in {socket.AF_INET, socket.AF_INET6} and copy.type == socket.SOCK_STREAM:
            local = copy.getsockname()[1]
            with contextlib.suppress(OSError):
                other = copy.getpeername()[1]
    return local, other


def _identity(fd: int) -> tuple[int, int] | None:
    status = os.fstat(fd)
    return (status.st_dev, status.st_ino) if stat.S_ISSOCK(status.st_mode) else None
