"""How long packets may be that reach a host, without its help and without rights.

A UDP datagram that must not be cut up, sent to a port at which nothing listens: the host's kernel answers with a small
ICMP message, whatever the size was.  A short one that is answered and a long one that never is prove an MTU black hole.
A host or firewall that drops such datagrams answers neither, which shows nothing.
"""

import contextlib
import errno
import select
import socket
import time
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from allready.facts.tasks import Task
from allready.live.node.reach import MAX_ADDRESSES, UNUSED_PORT, others
from allready.messaging.sockets import udp_overhead_bytes, udp_socket
from allready.model.live import PathSize, SocketRow

SHORT_BYTES = 128
STEPS_BYTES = (8900, 4000, 1500, 1450, 1400, 1280)
"""Sizes at which tunnels and networks end; of IP packets, like all sizes here."""
ROUND_S = 0.3
NUM_ROUNDS = 3
"""The longest is sent in each: single packets may be lost on a good path."""
MAX_STEPS = 3
"""Of one host: Linux answers six such datagrams at once, and one a second after that."""
MIN_BACKOFF = 2

_IP_MTU, _IPV6_MTU = 14, 24


def unanswered(rows: Iterable[SocketRow]) -> dict[str, str]:
    """Remote address -> own address, of hosts that do not acknowledge data of a connection that was open already."""
    return others(
        row
        for row in rows
        if row.backoff >= MIN_BACKOFF
        and row.state not in {"SYN_SENT", "SYN_RECV"}
        and (row.unacked > 0 or row.send_queue_bytes > 0)  # what the machine itself drops never counts as sent
    )


class _Host(Struct):
    remote: str
    local: str
    with_steps: bool = True
    mtu_bytes: int = 0
    answered: set[int] = set()
    tries: dict[int, int] = {}

    def sizes(self, number: int) -> tuple[int, ...]:
        steps = tuple(s for s in STEPS_BYTES if s < self.mtu_bytes)[:MAX_STEPS]
        steps = steps if number == 1 and self.with_steps else ()
        wanted = (SHORT_BYTES, self.mtu_bytes, *steps) if number < NUM_ROUNDS - 1 else (self.mtu_bytes,)
        return tuple(size for size in wanted if size and not any(size <= known for known in self.answered))

    def found(self) -> PathSize | None:
        """None when nothing was answered."""
        if not self.answered:
            return None
        passed = max(self.answered)
        lost = [size for size, num in self.tries.items() if size > passed and num > 0]
        return PathSize(passed_bytes=passed, lost_bytes=min(lost, default=None))


class PathSizes:
    """Asks again and again, but for the steps between only once: a host answers few such datagrams a second."""

    def __init__(self) -> None:
        self._holes: dict[str, PathSize] = {}

    def ask(self, rows: Iterable[SocketRow], *, every: bool = False) -> "Task[dict[str, PathSize]] | None":
        """Ask, in a thread, all hosts that leave data unacknowledged; None when there are none.

        Args:
            rows: the connections.
            every: ask the other hosts too, for comparison.
        """
        wanted, known = others(rows) if every else unanswered(rows), frozenset(self._holes)
        return Task(lambda: path_sizes(wanted, without_steps=known), "path sizes") if wanted else None

    def judged(self, found: Mapping[str, PathSize]) -> dict[str, PathSize]:
        """The answers, with the sizes that an earlier question found out."""
        sizes: dict[str, PathSize] = {}
        for remote, size in found.items():
            if size.lost_bytes is None:
                self._holes.pop(remote, None)
                sizes[remote] = size
            else:
                sizes[remote] = self._holes.setdefault(remote, size)
        return sizes


def path_sizes(wanted: Mapping[str, str], *, without_steps: Collection[str] = ()) -> dict[str, PathSize]:
    """Remote address -> the longest IP packet that was answered, and the shortest of those that never were.

    Takes at most 0.9 s, much less where the longest packets are answered.

    Args:
        without_steps: addresses of which only the shortest and the longest are tried.
    """
    hosts = [
        _Host(remote, local, with_steps=remote not in without_steps)
        for remote, local in list(wanted.items())[:MAX_ADDRESSES]
    ]
    for number in range(NUM_ROUNDS):
        _round(hosts, number)
    return {host.remote: size for host in hosts if (size := host.found()) is not None}


def _round(hosts: Iterable[_Host], number: int) -> None:
    poller = select.poll()
    waiting: dict[int, tuple[socket.socket, _Host, int]] = {}
    try:
        for host in hosts:
            if host.mtu_bytes in host.answered:
                continue
            if not host.mtu_bytes:
                host.mtu_bytes = _mtu_bytes(host)
            for size in host.sizes(number):
                with contextlib.suppress(OSError):
                    sock = _sent(host, size)
                    waiting[sock.fileno()] = (sock, host, size)
                    poller.register(sock, select.POLLIN)
                    host.tries[size] = host.tries.get(size, 0) + 1
        until = time.monotonic() + ROUND_S
        silent = set(waiting)
        while silent and (left := until - time.monotonic()) > 0:
            for fd, _ in poller.poll(left * 1000):
                poller.unregister(fd)
                silent.discard(fd)
                sock, host, size = waiting[fd]
                if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in {0, errno.ECONNREFUSED}:
                    host.answered.add(size)
    finally:
        for sock, _, _ in waiting.values():
            sock.close()


def _mtu_bytes(host: _Host) -> int:
    """Of the way as this host's kernel knows it; 0 when there is none."""
    try:
        with _opened(host) as sock:
            if sock.family == socket.AF_INET6:
                return sock.getsockopt(socket.IPPROTO_IPV6, _IPV6_MTU)
            return sock.getsockopt(socket.IPPROTO_IP, _IP_MTU)
    except OSError:
        return 0


def _sent(host: _Host, size_bytes: int) -> socket.socket:
    sock = _opened(host)
    try:
        sock.send(bytes(max(0, size_bytes - udp_overhead_bytes(host.remote))))
    except OSError:
        sock.close()
        raise
    return sock


def _opened(host: _Host) -> socket.socket:
    sock = udp_socket(host.remote)
    try:
        sock.bind((host.local, 0))  # the way that the connection takes
        sock.connect((host.remote, UNUSED_PORT))
    except OSError:
        sock.close()
        raise
    return sock
