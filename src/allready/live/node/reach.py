"""Whether the hosts at the other end of the ranks' connections still answer a first packet.

One SYN to a port that nothing should listen at: "refused" is an answer.  Many firewalls drop such packets, so an
address counts as not answering only if it has answered before: it is asked once when a rank's first connection to it
is seen.
"""

import errno
import ipaddress
import select
import socket
import time
from collections.abc import Iterable, Mapping

from allready.errors import DeadlineExceeded
from allready.facts.tasks import Task
from allready.model.live import SocketRow

UNUSED_PORT = 1
TRY_S = 0.35
NUM_TRIES = 2
"""One packet may be lost on a good path."""
MAX_ADDRESSES = 128


def others(rows: Iterable[SocketRow]) -> dict[str, str]:
    """Remote address -> own address used for it, of connections that leave this host; at most 128."""
    found: dict[str, str] = {}
    for row in rows:
        if row.remote == row.local or row.remote in found or len(found) >= MAX_ADDRESSES:
            continue
        try:
            address = ipaddress.ip_address(row.remote)
        except ValueError:
            continue
        if not (address.is_loopback or address.is_unspecified or address.is_link_local or address.is_multicast):
            found[row.remote] = row.local
    return found


class Reach:
    """What was found out so far.  For one thread at a time."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._answered: set[str] = set()
        self._learning: Task[dict[str, bool]] | None = None

    def learn(self, rows: Iterable[SocketRow]) -> None:
        """Ask, in a thread, the addresses that were not asked yet; returns at once."""
        self._take()
        new = {remote: local for remote, local in others(rows).items() if remote not in self._known}
        if new and self._learning is None:
            self._known |= new.keys()
            self._learning = Task(lambda: answers(new), "reach")

    def ask(self, rows: Iterable[SocketRow]) -> "Task[dict[str, bool]] | None":
        """Ask all others now, in a thread; None when there are none."""
        found = others(rows)
        return Task(lambda: answers(found), "reach") if found else None

    def judged(self, found: Mapping[str, bool]) -> dict[str, bool]:
        """Answers that mean something: silence of who never answered is left out."""
        self._take()
        self._answered |= {address for address, ok in found.items() if ok}
        self._known |= found.keys()
        return {address: ok for address, ok in found.items() if ok or address in self._answered}

    def _take(self) -> None:
        if self._learning is not None:
            try:
                found = self._learning.result(timeout_s=0.0)
            except DeadlineExceeded:
                return
            self._learning = None
            self._answered |= {address for address, ok in found.items() if ok}


def answers(wanted: Mapping[str, str], *, port: int = UNUSED_PORT) -> dict[str, bool]:
    """Remote address -> whether it answered within two tries of 0.35 s."""
    found = dict.fromkeys(wanted, False)
    for _ in range(NUM_TRIES):
        silent = {remote: local for remote, local in wanted.items() if not found[remote]}
        if silent:
            found |= _one_try(silent, port)
    return found


def _one_try(wanted: Mapping[str, str], port: int) -> dict[str, bool]:
    found = dict.fromkeys(wanted, False)
    poller = select.poll()
    waiting: dict[int, tuple[socket.socket, str]] = {}
    until = time.monotonic() + TRY_S
    try:
        for remote, local in wanted.items():
            family = socket.AF_INET6 if ":" in remote else socket.AF_INET
            try:
                sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            except OSError:  # no descriptors left
                break
            waiting[sock.fileno()] = (sock, remote)
            try:
                sock.bind((local, 0))  # the way that the connection takes
                error = sock.connect_ex((remote, port))
            except OSError:
                continue
            if error == errno.EINPROGRESS:
                poller.register(sock, select.POLLOUT)
            else:
                found[remote] = error in {0, errno.ECONNREFUSED}
        while (left := until - time.monotonic()) > 0 and not all(found.values()):
            for fd, _ in poller.poll(left * 1000):
                poller.unregister(fd)
                sock, remote = waiting[fd]
                found[remote] = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in {0, errno.ECONNREFUSED}
    finally:
        for sock, _ in waiting.values():
            sock.close()
    return found
