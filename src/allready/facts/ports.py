"""Local TCP ports: who listens, and whose connection attempts are stuck half-way."""

import socket
from collections.abc import Iterator
from typing import NamedTuple

from allready.errors import FactUnavailable
from allready.facts.host import Host, text_of
from allready.facts.processes import command_of, started_at, user_name, user_of
from allready.model import PortHolder

LISTEN, SYN_RECV = "0A", "03"
MAX_SOCKETS = 200_000
OWNER_TIMEOUT_S = 2.0


class Socket(NamedTuple):
    """One row of the kernel's table."""

    address: str
    port: int
    remote: str
    remote_port: int
    state: str
    uid: str
    inode: str


def port_holder(host: Host, port: int) -> PortHolder | None:
    """Who listens on a TCP port of this node; None when no process does."""
    for row in sockets_of(host):
        if row.port == port and row.state == LISTEN:
            return holder_of(host, row.uid, row.inode)
    return None


def process_holder(host: Host, pid: int) -> PortHolder:
    """A process of this node as the holder of a port."""
    return PortHolder(pid=pid, command=command_of(host, pid), user=user_of(host, pid), started=started_at(host, pid))


def half_open(host: Host, port: int) -> tuple[tuple[str, int], ...]:
    """Remote addresses and ports whose SYN reached this port and who have not acknowledged our answer.

    A peer that stays in this list hears nothing from us: packets are lost on the way back.  The kernel keeps such an
    entry for about a minute, also when the listener it came to is gone.
    """
    rows = (row for row in sockets_of(host) if row.port == port and row.state == SYN_RECV)
    return tuple(dict.fromkeys((row.remote, row.remote_port) for row in rows))


def parse_sockets(text: str) -> Iterator[Socket]:
    """Rows of /proc/net/tcp or tcp6; anything else is passed over."""
    for line in text.splitlines()[1 : MAX_SOCKETS + 1]:
        row = line.split()
        try:
            local, local_port = _endpoint(row[1])
            remote, remote_port = _endpoint(row[2])
            yield Socket(local, local_port, remote, remote_port, row[3], row[7], row[9])
        except (IndexError, ValueError, OSError):
            continue


def sockets_of(host: Host) -> Iterator[Socket]:
    """Every TCP socket of this machine."""
    yield from parse_sockets(host.read("/proc/net/tcp"))
    yield from parse_sockets(text_of(host, "/proc/net/tcp6"))  # "" where IPv6 is switched off


def _endpoint(text: str) -> tuple[str, int]:
    """Address and port of "0100007F:1F90"; the kernel prints the address as 32-bit words in host order."""
    address, _, port = text.partition(":")
    raw = bytes.fromhex(address)
    if len(raw) not in {4, 16}:
        raise ValueError("neither IPv4 nor IPv6")
    raw = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
    if raw[:12] == bytes(10) + b"\xff\xff":  # an IPv4 peer of a socket that takes both
        raw = raw[12:]
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw), int(port, 16)


def holder_of(host: Host, uid: str, inode: str) -> PortHolder:
    """The process behind a socket; only its user where it may not be seen."""
    try:
        pid = host.probe(f"socket_owner:{inode}", timeout_s=OWNER_TIMEOUT_S)
    except FactUnavailable:
        pid = None
    if not isinstance(pid, int):
        return PortHolder(pid=None, user=user_name(host, uid))
    return process_holder(host, pid)
