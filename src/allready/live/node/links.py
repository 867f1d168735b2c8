"""Network interfaces from the kernel itself (rtnetlink): up, carrier, counters, and rates since the last look.

Works in the calling thread's network namespace, unlike /sys/class/net.
"""

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from allready.errors import DeadlineExceeded, FactUnavailable
from allready.facts.netlink import interfaces
from allready.facts.tasks import Task
from allready.model.live import LinkRow

RTM_NEWLINK, RTM_GETLINK = 16, 18
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST_DUMP = 0x301
IFLA_IFNAME, IFLA_STATS64, IFLA_CARRIER = 3, 23, 33
IFF_UP, IFF_LOWER_UP = 0x1, 0x10000
MOST_LINKS = 256
SPEEDS_EVERY_S = 60.0
ADDRESSES_EVERY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One interface as the kernel tells it."""

    name: str
    is_up: bool
    has_carrier: bool
    sent_bytes: int = 0
    received_bytes: int = 0
    num_errors: int = 0
    num_dropped: int = 0


def links(*, timeout_s: float) -> tuple[Link, ...]:
    """All interfaces, in the kernel's order.

    Raises:
        FactUnavailable: netlink is refused here, or did not answer in time.
    """
    until = time.monotonic() + timeout_s
    header = struct.pack("=IHHIIBxHiII", 32, RTM_GETLINK, NLM_F_REQUEST_DUMP, 1, 0, socket.AF_UNSPEC, 0, 0, 0, 0)
    found: list[Link] = []
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) as sock:
            sock.bind((0, 0))
            sock.sendto(header, (0, 0))
            for body in _answers(sock, until):
                link = parse(body)
                if link is not None and len(found) < MOST_LINKS:
                    found.append(link)
    except (OSError, ValueError, struct.error) as error:
        raise FactUnavailable(f"rtnetlink: {error}") from error
    return tuple(found)


def _answers(sock: socket.socket, until: float) -> Iterator[bytes]:
    while True:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        sock.settimeout(left)
        data = sock.recv(1 << 18)
        at = 0
        while len(data) - at >= 16:
            length, kind = struct.unpack_from("=IH", data, at)
            if length < 16 or at + length > len(data):
                raise ValueError("a message of impossible length")
            if kind == NLMSG_DONE:
                return
            if kind == NLMSG_ERROR:
                number = -struct.unpack_from("=i", data, at + 16)[0] if length >= 20 else 0
                raise OSError(number, os.strerror(number) if number > 0 else "refused")
            if kind == RTM_NEWLINK:
                yield data[at + 16 : at + length]
            at += (length + 3) & ~3
        if at == 0:
            raise ValueError("an empty answer")


def parse(body: bytes) -> Link | None:
    """One `ifinfomsg` with its attributes; None when it is damaged or nameless."""
    if len(body) < 16:
        return None
    (flags,) = struct.unpack_from("=I", body, 8)
    name, carrier = "", bool(flags & IFF_LOWER_UP)
    counters: tuple[int, ...] = (0,) * 8
    at = 16
    while at + 4 <= len(body):
        length, kind = struct.unpack_from("=HH", body, at)
        if length < 4 or at + length > len(body):
            break
        value = body[at + 4 : at + length]
        kind &= 0x3FFF
        if kind == IFLA_IFNAME:
            name = value.split(b"\0")[0].decode(errors="replace")
        elif kind == IFLA_CARRIER and value:
            carrier = bool(value[0])
        elif kind == IFLA_STATS64 and len(value) >= 64:
            counters = struct.unpack_from("=8Q", value)
        at += (length + 3) & ~3
    if not name:
        return None
    _, _, received, sent, received_errors, sent_errors, received_dropped, sent_dropped = counters
    return Link(
        name=name,
        is_up=bool(flags & IFF_UP),
        has_carrier=carrier and bool(flags & IFF_UP),
        sent_bytes=sent,
        received_bytes=received,
        num_errors=received_errors + sent_errors,
        num_dropped=received_dropped + sent_dropped,
    )


class LinkWatch:
    """Interfaces with rates; speeds and addresses, which a driver may take long to tell, come from a thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, tuple[float, Link]] = {}
        self._slow: Task[tuple[dict[str, int | None], tuple[str, ...]]] | None = None
        self._asked_s = float("-inf")
        self._speeds: dict[str, int | None] = {}
        self._addresses: tuple[str, ...] = ()

    def look(self, *, timeout_s: float) -> tuple[LinkRow, ...]:
        """All interfaces now.

        Raises:
            FactUnavailable: the kernel does not tell.
        """
        now = time.monotonic()
        found = links(timeout_s=timeout_s)
        self._take_slow(now)
        rows = []
        with self._lock:
            for link in found:
                before = self._last.get(link.name)
                rows.append(self._row(link, before, now))
            self._last = {link.name: (now, link) for link in found}
        return tuple(rows)

    def addresses(self, *, timeout_s: float) -> tuple[str, ...]:
        """Addresses of this node, those of the loopback interface left out; the last known ones at the deadline."""
        self._take_slow(time.monotonic())
        if not self._addresses and self._slow is not None:
            with contextlib.suppress(DeadlineExceeded, FactUnavailable):
                self._speeds, self._addresses = self._slow.result(timeout_s=timeout_s)
        return self._addresses

    def _row(self, link: Link, before: tuple[float, Link] | None, now: float) -> LinkRow:
        sent = received = None
        if before is not None and now - before[0] > 0.2:
            sent, received = (
                (new - old) / (now - before[0]) if new >= old else None
                for new, old in (
                    (link.sent_bytes, before[1].sent_bytes),
                    (link.received_bytes, before[1].received_bytes),
                )
            )
        return LinkRow(
            name=link.name,
            is_up=link.is_up,
            has_carrier=link.has_carrier,
            sent_bytes=link.sent_bytes,
            received_bytes=link.received_bytes,
            sent_bytes_per_s=sent,
            received_bytes_per_s=received,
            speed_mbit_per_s=self._speeds.get(link.name),
            num_errors=link.num_errors,
            num_dropped=link.num_dropped,
        )

    def _take_slow(self, now: float) -> None:
        if self._slow is not None:
            try:
                self._speeds, self._addresses = self._slow.result(timeout_s=0.0)
            except DeadlineExceeded:
                return  # a driver that hangs keeps one thread, not one every minute
            except FactUnavailable:
                self._speeds, self._addresses = {}, ()
        every = SPEEDS_EVERY_S if self._addresses else ADDRESSES_EVERY_S
        if now - self._asked_s >= every:
            self._asked_s = now
            self._slow = Task(_speeds_and_addresses, "links")


def _speeds_and_addresses() -> tuple[dict[str, int | None], tuple[str, ...]]:
    rows = interfaces(timeout_s=2.0)
    found = [
        str(address).partition("/")[0]
        for row in rows if row["name"] != "lo"
        for address in row["addresses"]
    ]  # fmt: skip
    return {str(row["name"]): row["speed_mbit_per_s"] for row in rows}, tuple(dict.fromkeys(found))
