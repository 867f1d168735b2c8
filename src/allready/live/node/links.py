"""Network interfaces from the kernel itself (rtnetlink): up, carrier, counters, speeds.

Works in the calling thread's network namespace, unlike /sys/class/net.
"""

import contextlib
import struct
import time

from msgspec.structs import replace

from allready.errors import DeadlineExceeded, FactUnavailable
from allready.facts.netlink import interfaces
from allready.facts.netlink_dump import RTNETLINK, attributes, dump, opened
from allready.facts.tasks import Task
from allready.model.live import LinkRow

RTM_NEWLINK, RTM_GETLINK = 16, 18
IFLA_IFNAME, IFLA_STATS64, IFLA_CARRIER = 3, 23, 33
IFF_UP, IFF_LOWER_UP = 0x1, 0x10000
MAX_LINKS = 256
SPEEDS_EVERY_S = 60.0
ADDRESSES_EVERY_S = 10.0


def links(*, timeout_s: float) -> tuple[LinkRow, ...]:
    """All interfaces, in the kernel's order.

    Raises:
        FactUnavailable: netlink is refused here, or did not answer in time.
    """
    until = time.monotonic() + timeout_s
    found: list[LinkRow] = []
    try:
        with opened(RTNETLINK) as sock:
            for body in dump(sock, RTM_GETLINK, bytes(16), RTM_NEWLINK, until):
                link = parse(body)
                if link is not None and len(found) < MAX_LINKS:
                    found.append(link)
    except (OSError, ValueError, struct.error) as error:
        raise FactUnavailable("rtnetlink: {error}", error=error) from error
    return tuple(found)


def parse(body: bytes) -> LinkRow | None:
    """One `ifinfomsg` with its attributes; None when it is damaged or nameless."""
    if len(body) < 16:
        return None
    (flags,) = struct.unpack_from("=I", body, 8)
    rows = attributes(body[16:])
    name = rows.get(IFLA_IFNAME, b"").split(b"\0")[0].decode(errors="replace")
    carrier = bool(flags & IFF_LOWER_UP)
    if rows.get(IFLA_CARRIER):
        carrier = bool(rows[IFLA_CARRIER][0])
    stats = rows.get(IFLA_STATS64, b"")
    counters: tuple[int, ...] = struct.unpack_from("=8Q", stats) if len(stats) >= 64 else (0,) * 8
    if not name:
        return None
    _, _, received, sent, received_errors, sent_errors, received_dropped, sent_dropped = counters
    return LinkRow(
        name=name,
        is_up=bool(flags & IFF_UP),
        has_carrier=carrier and bool(flags & IFF_UP),
        sent_bytes=sent,
        received_bytes=received,
        num_errors=received_errors + sent_errors,
        num_dropped=received_dropped + sent_dropped,
    )


class LinkWatch:
    """Interfaces; their speeds and addresses, which a driver may take long to report, come from a thread."""

    def __init__(self) -> None:
        self._slow: Task[tuple[dict[str, int | None], dict[str, str]]] | None = None
        self._asked_s = float("-inf")
        self._speeds: dict[str, int | None] = {}
        self._addresses: dict[str, str] = {}

    def sample(self, *, timeout_s: float) -> tuple[LinkRow, ...]:
        """All interfaces now."""
        found = links(timeout_s=timeout_s)
        self._take_slow(time.monotonic())
        return tuple(replace(link, speed_mbit_per_s=self._speeds.get(link.name)) for link in found)

    def addresses(self, *, timeout_s: float) -> dict[str, str]:
        """Addresses of this node and their interfaces, loopback left out; the last known ones at the deadline."""
        self._take_slow(time.monotonic())
        if not self._addresses and self._slow is not None:
            with contextlib.suppress(DeadlineExceeded, FactUnavailable):
                self._speeds, self._addresses = self._slow.result(timeout_s=timeout_s)
        return self._addresses

    def _take_slow(self, now: float) -> None:
        if self._slow is not None:
            try:
                self._speeds, self._addresses = self._slow.result(timeout_s=0.0)
            except DeadlineExceeded:
                return  # a driver that hangs keeps one thread, not one every minute
            except FactUnavailable:
                self._speeds, self._addresses = {}, {}
        every = SPEEDS_EVERY_S if self._addresses else ADDRESSES_EVERY_S
        if now - self._asked_s >= every:
            self._asked_s = now
            self._slow = Task(_speeds_and_addresses, "links")


def _speeds_and_addresses() -> tuple[dict[str, int | None], dict[str, str]]:
    rows = interfaces(timeout_s=2.0)
    found: dict[str, str] = {}
    for row in rows:
        for address in row["addresses"] if row["name"] != "lo" else ():
            found.setdefault(str(address).partition("/")[0], str(row["name"]))
    return {str(row["name"]): row["speed_mbit_per_s"] for row in rows}, found
