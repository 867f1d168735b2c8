"""What speaks on a TCP port, when it is not our hub: known by its first bytes.

Probing is gentle: it reads a banner, asks one question per protocol, and closes.  Every wait is bounded.
"""

import asyncio
import contextlib
import secrets
import struct

from msgspec import Struct

from allready.messaging.silence import within
from allready.messaging.wire import GREETING

_TORCH_VALIDATE, _TORCH_PING = 0, 13  # torch/csrc/distributed/c10d/TCPStoreBackend.hpp, QueryType
_TORCH_MAGIC = 0x3C85F7CE  # the same file, validationMagicNumber
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


class Service(Struct, frozen=True, kw_only=True):
    """What answered.  kind: allready, torch-store, http, ssh, grpc (HTTP/2, as JAX's coordinator speaks), tls,
    banner (says something we do not know), silent (accepts, says nothing) or gone (accepts and closes)."""

    kind: str
    banner: str = ""


def classify_bytes(answer: bytes) -> Service:
    """What the bytes that a server sent say about it."""
    banner = answer[:120].decode("ascii", "replace").replace("\r", "").strip()
    banner = "".join(c if c.isprintable() else "." for c in banner)
    if answer.startswith(GREETING[:9]):
        return Service(kind="allready", banner=banner)
    if answer.startswith(b"HTTP/") or b"<html" in answer[:512].lower() or b"<!doctype html" in answer[:512].lower():
        return Service(kind="http", banner=banner)
    if answer.startswith(b"SSH-"):
        return Service(kind="ssh", banner=banner)
    if len(answer) >= 9 and answer[3] == 4 and answer[5:9] == b"\x00\x00\x00\x00":  # an HTTP/2 SETTINGS frame
        return Service(kind="grpc")
    if answer[:1] in {b"\x15", b"\x16"} and answer[1:2] == b"\x03":
        return Service(kind="tls")
    return Service(kind="banner", banner=banner)


async def identify(address: str, port: int, *, timeout_s: float = 1.0) -> Service:
    """Find out what listens on `address`:`port`; each of up to four questions waits `timeout_s` at most.

    Raises:
        OSError: nothing accepts there (any more).
    """
    answer = await _ask(address, port, GREETING, timeout_s)
    if answer:
        return classify_bytes(answer)
    nonce = secrets.token_bytes(4)
    question = struct.pack("<BI", _TORCH_VALIDATE, _TORCH_MAGIC) + bytes([_TORCH_PING]) + nonce
    if await _ask(address, port, question, timeout_s) == nonce:
        return Service(kind="torch-store")
    answer = await _ask(address, port, _HTTP2_PREFACE, timeout_s)
    if answer:
        return classify_bytes(answer)
    return Service(kind="silent" if answer is None else "gone")


async def _ask(address: str, port: int, question: bytes, timeout_s: float) -> bytes | None:
    """First bytes of the answer; b"" when the other side closed without an answer, None when it stayed silent."""
    return await within(timeout_s + 1.0, _asked(address, port, question, timeout_s))


async def _asked(address: str, port: int, question: bytes, timeout_s: float) -> bytes | None:
    reader, writer = await within(timeout_s, asyncio.open_connection(address, port))
    try:
        with contextlib.suppress(OSError):
            writer.write(question)
            await writer.drain()
        try:
            return await within(timeout_s, reader.read(512))
        except TimeoutError:
            return None
        except OSError:  # a reset is also an end without an answer
            return b""
    finally:
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(0.5):
                await writer.wait_closed()
