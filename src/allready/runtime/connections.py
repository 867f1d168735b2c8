"""The TCP connections of this process: which there are, and how those of a group are ended so that every operation in
it raises, on a thread of Gloo's that blocks as well.

Gloo closes a connection of which it reads the end, and gives every operation that waits for the peer an error, but none
to a send of which the kernel has not taken all yet, or none: its thread would wait for that until the operation's own
time-out.  So a connection is ended for reading only, on every rank by itself, and kept open where Gloo has closed it:
no write fails at either end before both have read their end.  And it is ended once this rank sends nothing on it: first
those on which it receives, which lets the others come to rest.
"""

import contextlib
import fcntl
import socket
import struct
import termios
import threading
import time
from collections.abc import Iterable

from msgspec import Struct

from allready.proc.own_sockets import Sockets, identity_of, tap

MAX_KEPT = 256
"""Connections; of more the oldest are closed."""
REST_MS = 8
"""So long nothing was sent: a thread that had more to write would have written it, also where CPUs are short.  Most
kernels count in ticks of 4 ms."""
BUSY_S = 0.25
"""So long a connection is waited for; where the peer is stopped, what is on its way stays there."""
_POLL_S = 0.001
_LAST_SENT_AT = 44
"""`tcpi_last_data_sent` in the kernel's `tcp_info`."""


class _Kept(Struct, eq=False):
    """A duplicate, with the ranks of its group and the latest time of its end."""

    connection: socket.socket
    members: frozenset[int]
    until_s: float
    is_ended: bool = False

    def end(self) -> None:
        self.is_ended = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RD)


class EndedGroups:
    """Connections of groups that are over.  For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[_Kept] = []  # oldest first
        self._has_thread = False

    def end(self, found: Sockets, members: Iterable[int]) -> None:
        """End these, soon.  What is kept already is left alone."""
        ranks, until_s = frozenset(members), time.monotonic() + BUSY_S
        with self._lock:
            known = {identity_of(one.connection.fileno()) for one in self._kept}
            for fd, identity in found.items():
                if identity in known:
                    continue
                with contextlib.suppress(OSError):
                    self._kept.append(_Kept(tap(fd, identity), ranks, until_s))
            if self._has_thread or all(one.is_ended for one in self._kept):
                return
            try:
                threading.Thread(target=self._wait, name="allready-runtime-end", daemon=True).start()
                self._has_thread = True
            except RuntimeError:  # no thread can be started: a blocked operation must be released all the same
                for one in self._kept:
                    one.end()

    def close(self, members: Iterable[int] | None = None) -> None:
        """Once a group forms: those of groups whose ranks are all in it, which are out of everything before.

        None: all of them.  What has not ended yet ends now.
        """
        present = None if members is None else frozenset(members)
        with self._lock:
            old = self._kept[: max(0, len(self._kept) - MAX_KEPT)]
            for one in (*self._kept,):
                if not one.is_ended:
                    one.end()
                if present is None or one in old or one.members <= present:
                    self._kept.remove(one)
                    with one.connection, contextlib.suppress(OSError):
                        one.connection.shutdown(socket.SHUT_RDWR)

    def _wait(self) -> None:
        while True:
            now_s = time.monotonic()
            with self._lock:
                for one in self._kept:
                    if not one.is_ended and (now_s >= one.until_s or _is_at_rest(one.connection)):
                        one.end()
                if all(one.is_ended for one in self._kept):
                    self._has_thread = False
                    return
            time.sleep(_POLL_S)


def _is_at_rest(connection: socket.socket) -> bool:
    """Whether the other end's kernel has taken all that was sent, and that was a while ago."""
    try:
        (unsent,) = struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, b"\0" * 4))
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_SENT_AT + 4)
    except OSError:
        return True
    (last_sent_ms,) = struct.unpack_from("I", info, _LAST_SENT_AT)
    return not unsent and last_sent_ms >= REST_MS
