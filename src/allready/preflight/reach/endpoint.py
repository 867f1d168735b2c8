"""The listening half of a node: random ports, ports of the given range, and one datagram port per address.

Listeners are bound to exactly the chosen addresses.  A connection that does not open with the stage's token is cut off.
"""

import asyncio
import errno
import hmac
import logging
import socket
from collections import Counter
from collections.abc import Iterator, Sequence

from allready.messaging.sockets import hang_up, socket_address, tcp_socket, udp_overhead_bytes, udp_socket
from allready.model import Phrase
from allready.model.fill import said, texts
from allready.preflight.reach import wire

log = logging.getLogger(__name__)

MAX_SESSIONS = 256
HELLO_S = 5.0  # the first word comes after the slowest connection of that node, and after losses are counted
IDLE_S = 10.0
_BACKLOG = 64
_RETRY_ACCEPT_S = 0.1
_RECEIVE_BUFFER_BYTES = 2**20
_MAX_TRIES_IN_RANGE = 64


class Endpoint:
    """A node's open ports.  `open` once, `close` always; in between it answers by itself."""

    def __init__(self, opening: wire.Opening, node_rank: int) -> None:
        self._opening = opening
        self._token = opening.token.encode("ascii")
        self._node_rank = node_rank
        self._listeners: list[socket.socket] = []
        self._receivers: list[asyncio.DatagramTransport] = []
        self._sessions: set[asyncio.Task[None]] = set()
        self._retries: set[asyncio.TimerHandle] = set()
        self._arrived: dict[tuple[int, int], Counter[int]] = {}

    async def open(self, addresses: Sequence[tuple[str, str]]) -> wire.EndpointReport:
        """Listen on every (interface, address); what cannot be opened is left out and reported."""
        offers: list[wire.AddressOffer] = []
        busy: set[int] = set()
        trouble: list[Phrase] = []
        for interface, address in addresses:
            try:
                data = tuple(self._listen(interface, address, 0) for _ in range(self._opening.num_data_ports))
                datagram = await self._receive(interface, address, len(offers))
            except OSError as error:
                form = "{address} ({interface}): {error}"
                trouble.append(said(form, address=address, interface=interface, error=error.strerror or error))
                continue
            in_range = self._listen_in_range(interface, address, busy)
            offers.append(
                wire.AddressOffer(
                    interface=interface, address=address, data_ports=data, range_ports=in_range, datagram_port=datagram
                )
            )
        why_not = texts(why=tuple(trouble[:4])) if trouble else {}
        return wire.EndpointReport(offers=tuple(offers), busy_ports=tuple(sorted(busy)), **why_not)

    def arrived(self) -> wire.Arrived:
        bursts, rows = self._opening.burst_bytes, []
        for (src, offer), sizes in sorted(self._arrived.items()):
            single = tuple(sorted(size for size in sizes if size not in bursts))
            rows.append(wire.ArrivedRow(src, offer, single, tuple(sizes[size] for size in bursts)))
        return wire.Arrived(rows=tuple(rows))

    async def close(self) -> None:
        """Close every port and end every session.  Safe to call twice."""
        loop = asyncio.get_running_loop()
        for handle in self._retries:
            handle.cancel()
        for listener in self._listeners:
            loop.remove_reader(listener)
            listener.close()
        self._listeners.clear()
        for receiver in self._receivers:
            receiver.abort()
        self._receivers.clear()
        sessions = list(self._sessions)
        for session in sessions:
            session.cancel()
        await asyncio.gather(*sessions, return_exceptions=True)
        await asyncio.sleep(0)  # asyncio closes a datagram socket in a callback

    def _listen(self, interface: str, address: str, port: int) -> int:
        listener = tcp_socket(address)
        try:
            if port:  # a connection in TIME_WAIT does not make a port busy; another listener does
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(socket_address(address, port, interface))
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        self._listeners.append(listener)
        asyncio.get_running_loop().add_reader(listener, self._accept, listener)
        return int(listener.getsockname()[1])

    def _listen_in_range(self, interface: str, address: str, busy: set[int]) -> tuple[int, ...]:
        opened: list[int] = []
        if self._opening.port_range is not None:
            for port in sampled_ports(*self._opening.port_range, avoid=self._opening.avoid_port):
                if len(opened) >= self._opening.num_range_ports:
                    break
                try:
                    opened.append(self._listen(interface, address, port))
                except OSError as error:
                    log.info("node_rank=%d: port %d of %s: %s", self._node_rank, port, address, error)
                    if error.errno == errno.EADDRINUSE:
                        busy.add(port)
        return tuple(opened)

    async def _receive(self, interface: str, address: str, offer: int) -> int:
        sock = udp_socket(address)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
            sock.bind(socket_address(address, 0, interface))
            port = int(sock.getsockname()[1])
            overhead = udp_overhead_bytes(address)
            transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: _Receiver(self, offer, overhead), sock=sock
            )
        except BaseException:
            sock.close()
            raise
        self._receivers.append(transport)
        return port

    def note(self, offer: int, packet: bytes, overhead_bytes: int) -> None:
        """Note a datagram, if it is one of this stage's and whole."""
        if len(packet) < wire.DATAGRAM.size:
            return
        token, src, size = wire.DATAGRAM.unpack_from(packet)
        wanted = (*self._opening.datagrams_bytes, *self._opening.burst_bytes)
        known = size in wanted and src < self._opening.num_nodes
        if known and len(packet) + overhead_bytes == size and hmac.compare_digest(token, self._token):
            self._arrived.setdefault((src, offer), Counter())[size] += 1

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_BACKLOG):
            try:
                sock, _ = listener.accept()
            except (BlockingIOError, ConnectionError):
                return
            except OSError as error:  # out of files or memory: without a pause the loop would spin
                log.warning("node_rank=%d: cannot accept a test connection: %s", self._node_rank, error)
                self._pause(listener)
                return
            sock.setblocking(False)
            if len(self._sessions) >= MAX_SESSIONS:
                hang_up(sock)
                continue
            session = asyncio.get_running_loop().create_task(self._serve(sock))
            self._sessions.add(session)
            session.add_done_callback(self._sessions.discard)

    def _pause(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)

        def again() -> None:
            self._retries.discard(handle)
            if listener in self._listeners:
                loop.add_reader(listener, self._accept, listener)

        handle = loop.call_later(_RETRY_ACCEPT_S, again)
        self._retries.add(handle)

    async def _serve(self, sock: socket.socket) -> None:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(HELLO_S):
                if not await self._greet(sock):
                    return
            while True:
                async with asyncio.timeout(IDLE_S):
                    await self._echo(sock)
        except (OSError, TimeoutError, EOFError) as error:
            log.debug("node_rank=%d: a test connection ended: %r", self._node_rank, error)
        finally:
            hang_up(sock)

    async def _greet(self, sock: socket.socket) -> bool:
        token, src = wire.HELLO.unpack(await receive_exactly(sock, wire.HELLO.size))
        if not hmac.compare_digest(token, self._token) or src >= self._opening.num_nodes:
            log.info("node_rank=%d: cut off a connection without this check's token", self._node_rank)
            return False
        await asyncio.get_running_loop().sock_sendall(sock, wire.REPLY.pack(wire.WELCOME, self._node_rank))
        return True

    async def _echo(self, sock: socket.socket) -> None:
        (size,) = wire.REQUEST.unpack(await receive_exactly(sock, wire.REQUEST.size))
        if size not in self._opening.payloads_bytes:
            raise EOFError(f"a payload of {size} bytes is not part of this check")
        payload = await receive_exactly(sock, size)
        loop = asyncio.get_running_loop()
        # The small answer goes first and alone: it says that the request arrived, even if the echo gets stuck.
        await loop.sock_sendall(sock, wire.REPLY.pack(wire.RECEIVED, size))
        await loop.sock_sendall(sock, payload)


class _Receiver(asyncio.DatagramProtocol):
    def __init__(self, endpoint: Endpoint, offer: int, overhead_bytes: int) -> None:
        self._endpoint, self._offer, self._overhead_bytes = endpoint, offer, overhead_bytes

    def datagram_received(self, data: bytes, addr: object) -> None:  # noqa: ARG002 - asyncio's signature
        self._endpoint.note(self._offer, data, self._overhead_bytes)


async def receive_exactly(sock: socket.socket, size_bytes: int) -> bytearray:
    """Read so many bytes; the caller sets the deadline.

    Raises:
        EOFError: the peer closed before.
        OSError: the connection broke.
    """
    loop = asyncio.get_running_loop()
    buffer = bytearray(size_bytes)
    view = memoryview(buffer)
    at = 0
    while at < size_bytes:
        got = await loop.sock_recv_into(sock, view[at:])
        if got == 0:
            raise EOFError("closed by the peer")
        at += got
    return buffer


def sampled_ports(low: int, high: int, *, avoid: int | None = None) -> Iterator[int]:
    """Ports of [low, high] spread over the range: both ends first, then ever finer halves; at most 64."""
    given: set[int] = set() if avoid is None else {avoid}
    tried = 0
    parts = 1
    while tried < _MAX_TRIES_IN_RANGE and parts <= 2 * (high - low + 1):
        for i in range(parts + 1):
            port = low + (high - low) * i // parts
            if port not in given and tried < _MAX_TRIES_IN_RANGE:
                given.add(port)
                tried += 1
                yield port
        parts *= 2
