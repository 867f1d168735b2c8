"""The wire format: a greeting line, then frames of a 5-byte header (length, flags) and JSON [kind, body].

The greeting makes an HTTP server answer at once, so that a wrong service shows itself, and tells garbage from a peer.
"""

import asyncio
import contextlib
import os
import re
import socket
import struct
import zlib
from typing import Any

import msgspec
from msgspec import Struct

from allready import __version__
from allready.errors import ExchangeError
from allready.json_bounds import decode_within
from allready.messaging.token import SEAL_BYTES, Seal
from allready.model import LaunchFacts
from allready.text.surrogates import to_json as to_json  # every message goes through it

GREETING = b"ALLREADY/1\r\n"
PROTOCOL = 4
"""Grows with every message that nodes of an earlier release do not know; node 0 refuses them."""

_HEADER = struct.Struct(">IB")
_COMPRESSED = 1
_SEALED = 2
_COMPRESS_FROM_BYTES = 4096

MAX_NODES = 65_536
ANY_RANK = -1
"""The node rank of a hello that leaves it to node 0."""

MAX_RANKS_PER_NODE = 1024
_ADDRESS = r"[A-Za-z0-9._:%\[\]-]{1,255}"
_MAX_KIND = 64  # letters

MAX_HELLO_BYTES = 64 * 1024
MAX_FRAME_BYTES = 32 * 2**20  # of one frame, also after decompression
MAX_ANSWER_BYTES = 2**20  # of node 0's answer to a hello: a refusal with the part of the roll that it is about
MAX_MEMORY_BYTES = 256 * 2**20  # that a message may take once it is decoded


def is_address(text: str) -> bool:
    """Whether what another node sent may be a host name or an IP address."""
    return re.fullmatch(_ADDRESS, text) is not None


class NodeHello(Struct, frozen=True, kw_only=True):
    """A node's first frame."""

    protocol: int
    tool_version: str
    node_rank: int
    name: str
    pid: int
    num_nodes: int
    nproc_per_node: int
    job_id: str
    master_addr: str
    instance: str  # random, tells this process from any other one, also behind address translation
    waited_s: float = 0.0


def hello_of(launch: LaunchFacts, *, name: str, instance: str, may_choose: bool = False) -> NodeHello:
    """This process's first frame.  `may_choose`: node 0 gives this node its rank."""
    return NodeHello(
        protocol=PROTOCOL,
        tool_version=__version__,
        node_rank=ANY_RANK if may_choose else launch.node_rank,
        name=name,
        pid=os.getpid(),
        num_nodes=launch.num_nodes,
        nproc_per_node=launch.nproc_per_node,
        job_id=launch.job_id,
        master_addr=launch.master_addr,
        instance=instance,
    )


def check_sound(hello: NodeHello, *, may_leave_rank: bool = False) -> None:
    """Refuse what no node of ours says, before it is counted with.

    `may_leave_rank`: ANY_RANK is an answer.

    Raises:
        ExchangeError: a number out of all bounds.
    """
    if not (
        (0 <= hello.node_rank < MAX_NODES or (may_leave_rank and hello.node_rank == ANY_RANK))
        and 1 <= hello.num_nodes <= MAX_NODES
        and 1 <= hello.nproc_per_node <= MAX_RANKS_PER_NODE
        and 0.0 <= hello.waited_s < 1e9
        and 0 <= hello.pid < 2**32
    ):
        raise ExchangeError("a number is out of all bounds")


SEGMENT_BYTES = 536  # RFC 9293: what every IPv4 path carries


def keep_segments_small(sock: socket.socket) -> None:
    """Make the store's own packets small; before listen() or connect().

    A path that drops large packets silently (the MTU black hole) must not silence the tool that is to find it.
    """
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)


def sealed(frame: bytes, seal: Seal | None) -> bytes:
    """The same frame with the seal of the shared token, where there is one; to be sent next."""
    if seal is None:
        return frame
    length, flags = _HEADER.unpack_from(frame)
    header = _HEADER.pack(length + SEAL_BYTES, flags | _SEALED)
    return b"".join((header, frame[_HEADER.size :], seal.put(frame[_HEADER.size - 1 :])))


def encode(kind: str, body: Any) -> bytes:
    """One frame."""
    payload = to_json((kind, body))
    flags = 0
    if len(payload) >= _COMPRESS_FROM_BYTES:
        payload, flags = zlib.compress(payload, 1), _COMPRESSED
    if len(payload) > MAX_FRAME_BYTES:
        raise ExchangeError(f"a {kind} message of {len(payload)} bytes is over the limit of {MAX_FRAME_BYTES}")
    return _HEADER.pack(len(payload), flags) + payload


async def read_frame(
    reader: asyncio.StreamReader, *, limit_bytes: int = MAX_FRAME_BYTES, seal: Seal | None = None
) -> tuple[str, Any]:
    """The next frame: its kind, and its body as plain data.

    Raises:
        ExchangeError: end of the stream, too long (also after decompression), or not our format.
    """
    kind, body = decode(*await read_payload(reader, limit_bytes=limit_bytes, seal=seal), limit_bytes=limit_bytes)
    return kind, plain(body)


class BrokenError(ExchangeError):
    """An error of the network, whose words are `text`, ended the connection."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


class PeerClosedError(ExchangeError):
    """The other end closed the connection."""


class LastingReader(asyncio.StreamReader):
    """Gives out all that has come before it raises what broke the connection.

    A process that was stopped for long writes into a connection that the other end has closed meanwhile, after what it
    had to say last; that write fails before all of it is read.
    """

    _broke: Exception | None = None

    def set_exception(self, exc: Exception) -> None:
        """Called by the transport: nothing comes any more."""
        self._broke = exc
        self.feed_eof()

    def exception(self) -> Exception | None:
        """What broke the connection: nothing can be written any more."""
        return self._broke

    async def read(self, n: int = -1) -> bytes:
        """What has come; raises what broke the connection where there is nothing more."""
        found = await super().read(n)
        if not found and n != 0 and self._broke is not None:
            raise self._broke
        return found

    async def readexactly(self, n: int) -> bytes:
        """So many bytes; raises what broke the connection where fewer came before."""
        try:
            return await super().readexactly(n)
        except asyncio.IncompleteReadError:
            if self._broke is not None:
                raise self._broke from None
            raise


async def open_stream(sock: socket.socket) -> tuple[LastingReader, asyncio.StreamWriter]:
    """As `asyncio.open_connection` does, with such a reader."""
    loop = asyncio.get_running_loop()
    reader = LastingReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.create_connection(lambda: protocol, sock=sock)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def read_payload(
    reader: asyncio.StreamReader, *, limit_bytes: int = MAX_FRAME_BYTES, seal: Seal | None = None
) -> tuple[bytes, int]:
    """The next frame as it came, with its flags; for `decode`.  `seal`: it must have the next one.

    Raises:
        ExchangeError: end of the stream, too long, or without the seal that it must have.
    """
    try:
        length, flags = _HEADER.unpack(await reader.readexactly(_HEADER.size))
        if length > limit_bytes + SEAL_BYTES:
            raise ExchangeError(f"a message of {length} bytes, the limit is {limit_bytes}")
        payload = await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        raise PeerClosedError("the other side closed the connection") from error
    except OSError as error:
        raise BrokenError(f"the connection broke: {error}", str(error)) from error
    return (payload, flags) if seal is None else unsealed(payload, flags, seal)


def is_sealed(flags: int) -> bool:
    """Whether a frame says that it has a seal."""
    return bool(flags & _SEALED)


def unsealed(payload: bytes, flags: int, seal: Seal | None) -> tuple[bytes, int]:
    """Payload and flags without the seal, which was the next one.

    Raises:
        ExchangeError: it was not.
    """
    if seal is None:
        return payload, flags
    if not is_sealed(flags) or len(payload) < SEAL_BYTES:
        raise ExchangeError("a message without the seal of the shared token")
    content, mark, flags = payload[:-SEAL_BYTES], payload[-SEAL_BYTES:], flags & ~_SEALED
    seal.check(mark, bytes([flags]) + content)
    return content, flags


def decode(payload: bytes, flags: int, *, limit_bytes: int = MAX_FRAME_BYTES) -> tuple[str, msgspec.Raw]:
    """Kind and body of a frame's payload; the body still as JSON, which takes no more room than it has bytes.

    Raises:
        ExchangeError: not our format, a compressed payload that would grow past the limit, or a body that would take
            too much memory once it is decoded.
    """
    try:
        if flags & _COMPRESSED:
            stream = zlib.decompressobj()
            payload = stream.decompress(payload, limit_bytes)
            if stream.unconsumed_tail:
                raise ExchangeError(f"a message that unpacks to more than {limit_bytes} bytes")
        kind, body = decode_within(MAX_MEMORY_BYTES, payload, tuple[str, msgspec.Raw])
    except (zlib.error, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise ExchangeError(f"not a message of ours: {error}") from error
    return kind[:_MAX_KIND], body


def plain(body: Any) -> Any:
    """What a body of `decode` says, as plain lists, dicts, strings and numbers.

    Raises:
        ExchangeError: it is no JSON.
    """
    try:
        return msgspec.json.decode(body) if isinstance(body, msgspec.Raw) else body
    except (ValueError, RecursionError) as error:
        raise ExchangeError(f"not a message of ours: {error}") from error
