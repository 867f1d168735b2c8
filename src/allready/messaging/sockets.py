"""Addresses and sockets of the reachability stage; the numbers of Linux that Python's `socket` does not name."""

import asyncio
import contextlib
import fcntl
import ipaddress
import socket
import struct
import termios
from pathlib import Path

from msgspec import Struct

from allready.messaging.wire import keep_segments_small
from allready.model import TransportFacts

BACKLOG = 4096
SocketAddress = tuple[str, int] | tuple[str, int, int, int]

_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER = 10, 23
_PMTUDISC_PROBE = 3  # sets "don't fragment" and ignores what the kernel believes of the path
_IP_RECVERR, _IPV6_RECVERR = 11, 25
_OPEN = {1, 8}  # TCP_ESTABLISHED, TCP_CLOSE_WAIT
_SO_EE_ORIGIN_ICMP, _SO_EE_ORIGIN_ICMP6 = 2, 3


def local_addresses(
    transport: TransportFacts, *, num_nodes: int, most: int, with_nccl: bool = True
) -> tuple[tuple[str, str], ...]:
    """(interface, address) that NCCL and Gloo chose, each once, NCCL's first, at most `most`.

    Without NCCL in the job only Gloo's count: NCCL takes every interface, also one that leads to no other node.
    Loopback addresses lead to no other node; they count only if there is nothing else.
    """
    chosen: dict[str, str] = {}
    for choice in (transport.nccl, transport.gloo) if with_nccl else (transport.gloo,):
        for interface, text in zip(choice.interfaces, choice.addresses, strict=False):
            address = text.partition("%")[0]
            if is_address(address):
                chosen.setdefault(address, interface)
    outside = {a: i for a, i in chosen.items() if not ipaddress.ip_address(a).is_loopback}
    if num_nodes > 1 and outside:
        chosen = outside
    return tuple((interface, address) for address, interface in chosen.items())[:most]


def is_address(text: str) -> bool:
    """Whether `text` is an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def family_of(address: str) -> socket.AddressFamily:
    """AF_INET or AF_INET6."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def source_address(host: str) -> str | None:
    """The own address from which the kernel would send to `host`; None without a way there.  Nothing is sent."""
    try:
        family, _, _, _, where = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect(where)
            return str(sock.getsockname()[0])
    except (OSError, UnicodeError):  # no way there; or no name of a host
        return None


def socket_address(address: str, port: int, interface: str | None) -> SocketAddress:
    """What bind and connect take; `interface` is the local one, which a link-local IPv6 address needs."""
    if ":" not in address:
        return (address, port)
    scoped = interface is not None and ipaddress.IPv6Address(address).is_link_local
    return (address, port, 0, socket.if_nametoindex(interface) if scoped and interface else 0)


def tcp_socket(address: str) -> socket.socket:
    """A non-blocking TCP socket of the address's family that sends small messages at once."""
    sock = socket.socket(family_of(address), socket.SOCK_STREAM)
    sock.setblocking(False)
    send_at_once(sock)
    return sock


def listening_socket(port: int, *, loopback_only: bool = False) -> socket.socket:
    """One dual-stack socket where the kernel has IPv6, else one for IPv4.

    On several nodes all addresses: others may reach us by any of ours, as with torch's own store.  Without
    SO_REUSEPORT, on purpose: gRPC sets it, and would share the port with a coordinator that is still there.

    Raises:
        OSError: the port is taken, or may not be had.
    """
    dual = not loopback_only and socket.has_dualstack_ipv6()
    host = "::" if dual else "127.0.0.1" if loopback_only else "0.0.0.0"  # noqa: S104
    sock = socket.socket(socket.AF_INET6 if dual else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if dual:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        keep_segments_small(sock)
        send_at_once(sock)
        sock.bind((host, port))
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def send_at_once(sock: socket.socket) -> None:
    """Small messages wait for no acknowledgement, which the other end delays by 40 ms.

    A listening socket hands it down to those that it accepts; asyncio sets it only on sockets that were made with the
    number of their protocol, as those of `socket.create_server` are not.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def udp_socket(address: str) -> socket.socket:
    """A non-blocking UDP socket whose datagrams must not be fragmented on the way."""
    sock = socket.socket(family_of(address), socket.SOCK_DGRAM)
    sock.setblocking(False)
    v6 = sock.family == socket.AF_INET6
    level, option = (socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER) if v6 else (socket.IPPROTO_IP, _IP_MTU_DISCOVER)
    sock.setsockopt(level, option, _PMTUDISC_PROBE)
    return sock


def udp_overhead_bytes(address: str) -> int:
    """Bytes of an IP packet that are not the datagram's content."""
    return 48 if ":" in address else 28


def hang_up(sock: socket.socket) -> None:
    """Close with a reset: nothing lingers in TIME_WAIT or keeps retransmitting, and the port is free for the job."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass  # already broken: closing is all that is left
    finally:
        sock.close()


def want_errors(sock: socket.socket, want: bool) -> None:
    """Keep ICMP errors for `icmp_error`; while connecting only: later, passing errors would become fatal ones."""
    v6 = sock.family == socket.AF_INET6
    level, option = (socket.IPPROTO_IPV6, _IPV6_RECVERR) if v6 else (socket.IPPROTO_IP, _IP_RECVERR)
    with contextlib.suppress(OSError):  # a sandbox without it: the errno alone must do
        sock.setsockopt(level, option, int(want))


def icmp_error(sock: socket.socket) -> tuple[int, int, str] | None:
    """(type, code, sender) of the ICMP message that ended a connect; None: there was none (a reset, or silence)."""
    try:
        _, ancillary, _, _ = sock.recvmsg(512, 512, socket.MSG_ERRQUEUE)
    except OSError:
        return None
    for _, _, data in ancillary:
        if len(data) < 24:
            continue
        _, origin, kind, code = struct.unpack_from("=IBBB", data)
        family = struct.unpack_from("=H", data, 16)[0]
        if origin == _SO_EE_ORIGIN_ICMP and family == socket.AF_INET:
            return kind, code, socket.inet_ntop(socket.AF_INET, data[20:24])
        if origin == _SO_EE_ORIGIN_ICMP6 and family == socket.AF_INET6 and len(data) >= 40:
            return kind, code, socket.inet_ntop(socket.AF_INET6, data[24:40])
    return None


class TcpState(Struct, frozen=True):
    """What the kernel knows of one TCP connection, as far as it is needed here; 0 is also what an old kernel lacks.

    `is_open`: data may come or go; an end that was reset has forgotten what was on its way.
    `num_unacked`: segments of ours on their way.  `num_timeouts`: doublings of the timeout now in force.
    `num_segments`: that came in, since the connection began.  `num_bytes`: that the peer's kernel acknowledged, and
    that came in, since the start; None: this kernel does not count them.  `segment_bytes`: the largest that we send.
    `num_sent`: segments with data that we sent, and `num_retransmits` of them again.  `busy_s`: time with data under
    way, `full_s` of it without room at the receiver.
    """

    num_unacked: int = 0
    num_timeouts: int = 0
    num_segments: int = 0
    num_bytes: tuple[int, int] | None = None
    segment_bytes: int = 0
    num_sent: int = 0
    num_retransmits: int = 0
    busy_s: float = 0.0
    full_s: float = 0.0
    is_open: bool = False

    @property
    def is_acknowledged(self) -> bool:
        """Whether the peer's kernel has everything that was sent to it."""
        return self.num_segments > 0 and self.num_unacked == 0 and self.num_timeouts == 0

    @property
    def is_answering(self) -> bool:
        """Whether nothing of ours is unacknowledged for as long as the kernel waits; the newest may be."""
        return self.is_open and self.num_segments > 0 and self.num_timeouts == 0


_PROBES = 2
"""The kernel repeats the last segment so often before the first time-out and besides."""


class Delivery:
    """How much of what was sent over a connection had to be sent again until it was acknowledged.

    What is repeated to a machine that is gone is never acknowledged, and does not count.
    """

    def __init__(self) -> None:
        self.num_sent = self.num_resent = 0

    def note(self, state: TcpState) -> None:
        """Note the state; what is being repeated now may never arrive."""
        if state.is_open:
            under_way = 0 if state.is_acknowledged else state.num_timeouts + _PROBES
            self.num_sent = max(self.num_sent, state.num_sent - under_way)
            self.num_resent = max(self.num_resent, state.num_retransmits - under_way)


def tcp_state(sock: socket.socket) -> TcpState:
    """`struct tcp_info` of linux/tcp.h, which grows with the kernel's version."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)

    def read(kind: str, offset: int) -> int:
        fits = len(info) >= offset + struct.calcsize(kind)
        return int(struct.unpack_from(kind, info, offset)[0]) if fits else 0

    return TcpState(
        num_unacked=read("=I", 24),
        num_timeouts=read("=B", 4),
        num_segments=read("=I", 140),  # since Linux 4.2
        num_bytes=(read("=Q", 120), read("=Q", 128)) if len(info) >= 136 else None,  # since Linux 4.1
        segment_bytes=read("=I", 16),
        num_sent=read("=I", 156),  # since Linux 4.6
        num_retransmits=read("=I", 100),
        busy_s=read("=Q", 168) / 1e6,  # since Linux 4.10
        full_s=read("=Q", 176) / 1e6,
        is_open=read("=B", 0) in _OPEN,
    )


def writer_state(writer: asyncio.StreamWriter) -> TcpState:
    """The state of a stream's connection; all 0 where it is closed, or no socket of the kernel."""
    try:
        return tcp_state(writer.get_extra_info("socket"))
    except (AttributeError, OSError):
        return TcpState()


def tcp_progress(sock: socket.socket) -> tuple[int, int] | None:
    """`TcpState.num_bytes`; None also for a connection that is closed.

    Tells a path that carries nothing from one that is slow, and from a peer whose process does not answer.
    """
    try:
        return tcp_state(sock).num_bytes
    except OSError:
        return None


def unacknowledged_bytes(sock: socket.socket) -> int:
    """What was written to a TCP connection and is not acknowledged, sent or not (SIOCOUTQ)."""
    return int(struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))[0])


def unanswered_arp(address: str, table: Path = Path("/proc/net/arp")) -> str | None:
    """The interface on which the kernel asked for `address` by ARP in vain; None: it was answered, or not needed."""
    try:
        rows = [line.split() for line in table.read_text(encoding="ascii", errors="replace").splitlines()[1:]]
    except OSError:
        return None
    return next((row[5] for row in rows if len(row) >= 6 and row[0] == address and row[2] == "0x0"), None)
