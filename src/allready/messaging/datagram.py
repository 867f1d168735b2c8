"""The UDP call: how a node whose TCP connection gets no answer still tells node 0 that it is there.

A filter on the master's TCP port or a path that is broken in one direction silences TCP completely, and node 0 could
only say "absent".  A datagram needs one direction only, so whether the call and its answer arrive tells the two apart.
Node 0 answers with fewer bytes than it was sent (no amplification), and only to well-formed calls.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from allready.messaging.token import Token
from allready.messaging.wire import to_json

_CALL = b"ALLREADY-CALL/1 "
_ANSWER = b"ALLREADY-HEARD/1 "
_PAD_BYTES = 400
_PURPOSE = b"call by datagram"


class UdpCall(Struct, frozen=True, kw_only=True):
    """A node's words.  `hears_us`: an answer to an earlier call arrived; None before one could have."""

    job_id: str
    node_rank: int
    num_nodes: int
    name: str
    contact: str  # what became of its TCP connection: silent, refused, ...
    hears_us: bool | None
    proof: str = ""  # of the shared token

    def with_proof(self, token: Token | None) -> "UdpCall":
        """The same call with the proof that its sender has the token."""
        return self if token is None else replace(self, proof=token.proof(_PURPOSE, self._payload()).hex())

    def has_proof(self, token: Token | None) -> bool:
        """Whether its sender has the token; any sender may call where there is none."""
        return token is None or token.is_proof(self.proof, _PURPOSE, self._payload())

    def _payload(self) -> bytes:
        return to_json(replace(self, proof=""))


class DatagramListener(asyncio.DatagramProtocol):
    """Node 0's ear on the UDP port of the same number as the master port."""

    def __init__(self, job_id: str, on_call: Callable[[UdpCall, str], None], token: Token | None = None) -> None:
        self._token = token
        self._job_id = job_id
        self._on_call = on_call
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if not data.startswith(_CALL) or len(data) < _PAD_BYTES:
            return
        try:
            call = msgspec.json.decode(data[len(_CALL) :].rstrip(b"\x00"), type=UdpCall)
        except (msgspec.DecodeError, RecursionError):
            return
        if not call.has_proof(self._token):
            return
        if self._transport is not None and call.job_id == self._job_id:
            self._transport.sendto(_ANSWER + self._job_id.encode(errors="replace")[:200], addr)
        self._on_call(call, addr[0])

    def error_received(self, exc: Exception) -> None:
        """ICMP errors of our answers; the caller finds out by itself."""


async def listen(
    port: int, job_id: str, on_call: Callable[[UdpCall, str], None], *, token: Token | None = None
) -> asyncio.DatagramTransport | None:
    """Open the UDP port; None when it cannot be opened (then there is simply no such evidence)."""
    loop = asyncio.get_running_loop()
    for family, host in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):  # noqa: S104 - as the TCP port
        sock = socket.socket(family, socket.SOCK_DGRAM)
        try:
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.setblocking(False)
            sock.bind((host, port))
            transport, _ = await loop.create_datagram_endpoint(
                lambda: DatagramListener(job_id, on_call, token), sock=sock
            )
        except OSError:
            sock.close()
        else:
            return transport
    return None


class _Receiver(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.has_answer = asyncio.Event()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:  # noqa: ARG002
        if data.startswith(_ANSWER):
            self.has_answer.set()


class DatagramCaller:
    """A node's side: `call` as often as wanted, `close` at the end."""

    def __init__(self, token: Token | None = None) -> None:
        self._token = token
        self._transport: asyncio.DatagramTransport | None = None
        self._receiver = _Receiver()
        self._to: tuple[str, int] | None = None
        self.heard: bool | None = None  # None until a call had time to be answered

    async def call(self, address: str, port: int, call: UdpCall, *, timeout_s: float) -> bool | None:
        """Send the call three times within `timeout_s`; True once node 0 answered, and knows that it reached us."""
        with contextlib.suppress(OSError):
            if self.heard and self._transport is not None:
                self._send(replace(call, hears_us=True))
                return True
            if self._to != (address, port):
                self.close()
                self._to = (address, port)
                self._transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                    lambda: self._receiver, remote_addr=(address, port)
                )
            for _ in range(3):
                self._send(call)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(timeout_s / 3):
                        await self._receiver.has_answer.wait()
                    # Without this node 0 could not tell a filtered port from a path that is broken in one direction.
                    self._send(replace(call, hears_us=True))
                    break
        self.heard = self._receiver.has_answer.is_set()
        return self.heard

    def _send(self, call: UdpCall) -> None:
        assert self._transport is not None
        self._transport.sendto((_CALL + to_json(call.with_proof(self._token))).ljust(_PAD_BYTES, b"\x00"))

    def close(self) -> None:
        """Close the socket; may be called twice."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None
