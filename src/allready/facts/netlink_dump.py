"""One question to the kernel over netlink whose answer is a list: rtnetlink's and INET_DIAG's dumps."""

import os
import socket
import struct
import time
from collections.abc import Iterator

RTNETLINK, SOCK_DIAG = 0, 4
"""Families of netlink."""
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST_DUMP = 0x301
_HEADER_BYTES = 16
_MAX_BYTES = 1 << 18


def opened(family: int) -> socket.socket:
    """A socket of the calling thread's network namespace; the caller closes it."""
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family)
    try:
        sock.bind((0, 0))
    except OSError:
        sock.close()
        raise
    return sock


def dump(sock: socket.socket, ask: int, body: bytes, want: int, until: float) -> Iterator[bytes]:
    """The bodies of all messages of one kind up to the end of the list.

    `ask` is the request's type, `body` what follows its header, `want` the type of the messages.

    Raises:
        TimeoutError: the list did not end in time.
        OSError: the kernel refuses.
        ValueError: what came is no netlink.
    """
    sock.sendto(struct.pack("=IHHII", _HEADER_BYTES + len(body), ask, NLM_F_REQUEST_DUMP, 1, 0) + body, (0, 0))
    while True:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        sock.settimeout(left)
        data = memoryview(sock.recv(_MAX_BYTES))
        at = 0
        while len(data) - at >= _HEADER_BYTES:
            length, kind = struct.unpack_from("=IH", data, at)
            if length < _HEADER_BYTES or at + length > len(data):
                raise ValueError("a message of impossible length")
            if kind == NLMSG_DONE:
                return
            if kind == NLMSG_ERROR:
                number = -struct.unpack_from("=i", data, at + _HEADER_BYTES)[0] if length >= _HEADER_BYTES + 4 else 0
                raise OSError(number, os.strerror(number) if number > 0 else "refused")
            if kind == want:
                yield bytes(data[at + _HEADER_BYTES : at + length])
            at += (length + 3) & ~3
        if at == 0:
            raise ValueError("an empty answer")


def attributes(data: bytes) -> dict[int, bytes]:
    """Number -> value of the attributes of a message, up to one that is damaged; of a number the first counts."""
    found: dict[int, bytes] = {}
    at = 0
    while len(data) - at >= 4:
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4 or at + length > len(data):
            break
        found.setdefault(kind & 0x3FFF, data[at + 4 : at + length])
        at += (length + 3) & ~3
    return found
