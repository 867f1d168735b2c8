"""Interfaces and addresses from the kernel itself (rtnetlink), in the order in which getifaddrs(3) gives them.

Not from /sys/class/net: that shows the namespace in which /sys was mounted, which need not be this process's.
The order matters, because NCCL takes the first match.
"""

import array
import contextlib
import fcntl
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

from allready.errors import FactUnavailable
from allready.facts.netlink_dump import RTNETLINK, attributes, dump, opened

RTM_NEWLINK, RTM_GETLINK, RTM_NEWADDR, RTM_GETADDR = 16, 18, 20, 22
RTM_NEWROUTE, RTM_GETROUTE = 24, 26
RTM_NEWRULE, RTM_GETRULE = 32, 34
MAIN_TABLE = 254
SKIP_STATS = struct.pack("=HHI", 8, 29, 8)  # IFLA_EXT_MASK = RTEXT_FILTER_SKIP_STATS
SIOCETHTOOL, ETHTOOL_GSET, ETHTOOL_GDRVINFO = 0x8946, 0x1, 0x3


def interfaces(*, timeout_s: float) -> list[dict[str, Any]]:
    """All interfaces, those with addresses first, each with its addresses in the kernel's order.

    Keys: name, flags (IFF_ bits), mtu, hwtype (ARPHRD_), mac, link_kind ("veth", "bridge", ... or None), driver,
    speed_mbit_per_s, addresses (CIDR texts).
    """
    until = time.monotonic() + timeout_s
    try:
        with opened(RTNETLINK) as sock:
            links = dict(_link(body) for body in dump(sock, RTM_GETLINK, bytes(16) + SKIP_STATS, RTM_NEWLINK, until))
            rows = [_address(body) for body in dump(sock, RTM_GETADDR, bytes(8), RTM_NEWADDR, until)]
    except (OSError, struct.error, ValueError) as error:
        raise FactUnavailable("rtnetlink: {error}", error=error) from error
    found: dict[str, dict[str, Any]] = {}
    for index, label, address in rows:
        link = links.get(index)
        if link is None or address is None:
            continue
        name = label or link["name"]  # an alias such as eth0:1 is a name of its own to getifaddrs, thus to NCCL
        found.setdefault(name, {**link, "name": name, "addresses": []})["addresses"].append(address)
    for link in links.values():
        found.setdefault(link["name"], {**link, "addresses": []})
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for name, row in found.items():
            row["driver"], row["speed_mbit_per_s"] = ethtool(sock, name.partition(":")[0])
    return list(found.values())


def addresses(*, timeout_s: float) -> tuple[str, ...]:
    """Of all interfaces, without prefix length; () where the kernel gives none.  No driver is asked."""
    try:
        with opened(RTNETLINK) as sock:
            answers = dump(sock, RTM_GETADDR, bytes(8), RTM_NEWADDR, time.monotonic() + timeout_s)
            found = [_address(body)[2] for body in answers]
    except (OSError, struct.error, ValueError):
        return ()
    return tuple(address.partition("/")[0] for address in found if address is not None)


def routing_rules(*, timeout_s: float) -> list[dict[str, Any]]:
    """The rules of both families that choose a routing table.

    Keys: priority, table, and as far as the rule has them source, destination, iif, oif, mark.
    """
    until = time.monotonic() + timeout_s
    found: list[dict[str, Any]] = []
    try:
        with opened(RTNETLINK) as sock:
            for family in (socket.AF_INET, socket.AF_INET6):
                body = struct.pack("=B11x", family)
                found += [_rule(answer) for answer in dump(sock, RTM_GETRULE, body, RTM_NEWRULE, until)]
    except (OSError, struct.error, ValueError) as error:
        raise FactUnavailable("rtnetlink: {error}", error=error) from error
    return found


def shared_routes(*, timeout_s: float) -> list[dict[str, Any]]:
    """IPv4 routes of the main table with several ways (`nexthop`), of which /proc/net/route shows the first only.

    Keys: destination, metric, ways: [[interface, gateway or None], ...].
    """
    until = time.monotonic() + timeout_s
    try:
        with opened(RTNETLINK) as sock:
            body = struct.pack("=B11x", socket.AF_INET)
            found = [_shared(answer) for answer in dump(sock, RTM_GETROUTE, body, RTM_NEWROUTE, until)]
    except (OSError, struct.error, ValueError) as error:
        raise FactUnavailable("rtnetlink: {error}", error=error) from error
    return [route for route in found if route is not None]


def _shared(body: bytes) -> dict[str, Any] | None:
    _, bits, _, _, table = struct.unpack_from("=BBBBB", body)
    rows = attributes(body[12:])
    if 9 not in rows or (struct.unpack("=I", rows[15])[0] if 15 in rows else table) != MAIN_TABLE:
        return None
    return {
        "destination": f"{socket.inet_ntop(socket.AF_INET, rows.get(1, bytes(4)))}/{bits}",
        "metric": struct.unpack("=I", rows[6])[0] if 6 in rows else 0,
        "ways": list(_ways(rows[9])),
    }


def _ways(data: bytes) -> Iterator[list[str | None]]:
    at = 0
    while len(data) - at >= 8:
        length, _, _, index = struct.unpack_from("=HBBi", data, at)
        if length < 8 or at + length > len(data):
            return
        gateway = attributes(data[at + 8 : at + length]).get(5)
        with contextlib.suppress(OSError):  # an interface that is gone meanwhile
            yield [socket.if_indextoname(index), socket.inet_ntop(socket.AF_INET, gateway) if gateway else None]
        at += (length + 3) & ~3


def _rule(body: bytes) -> dict[str, Any]:
    family, to_bits, from_bits, _, table = struct.unpack_from("=BBBBB", body)
    rows = attributes(body[12:])
    numbers = {
        name: struct.unpack("=I", rows[key])[0]
        for name, key in (("priority", 6), ("mark", 10), ("table", 15))
        if key in rows
    }
    texts = {name: _text(rows[key]) for name, key in (("iif", 3), ("oif", 17)) if key in rows}
    networks = {
        name: f"{socket.inet_ntop(family, rows[key])}/{bits}"
        for name, key, bits in (("destination", 1, to_bits), ("source", 2, from_bits))
        if key in rows
    }
    return {"priority": 0, "table": table, **numbers, **texts, **networks}


def ethtool(sock: socket.socket, name: str) -> tuple[str | None, int | None]:
    """Driver and speed in Mbit/s of an interface, each None where the driver does not report it."""
    info = _ethtool(sock, name, ETHTOOL_GDRVINFO, 196)
    settings = _ethtool(sock, name, ETHTOOL_GSET, 44)
    driver = info[4:36].split(b"\0")[0].decode(errors="replace") if info else ""
    speed = None
    if settings:
        low, high = struct.unpack_from("=H", settings, 12)[0], struct.unpack_from("=H", settings, 28)[0]
        speed = low | high << 16
    return driver or None, speed if speed and speed not in {0xFFFF, 0xFFFFFFFF} else None


def _ethtool(sock: socket.socket, name: str, command: int, size: int) -> bytes | None:
    data = array.array("B", struct.pack("=I", command) + bytes(size - 4))
    request = struct.pack("16sP16x", name.encode()[:15], data.buffer_info()[0])
    with contextlib.suppress(OSError):
        fcntl.ioctl(sock, SIOCETHTOOL, request)
        return data.tobytes()
    return None


def _link(body: bytes) -> tuple[int, dict[str, Any]]:
    hwtype, index, flags = struct.unpack_from("=HiI", body, 2)
    rows = attributes(body[16:])
    nested = attributes(rows.get(18, b""))
    mac = rows.get(1, b"")
    return index, {
        "name": _text(rows.get(3, b"")) or str(index),
        "flags": flags,
        "mtu": struct.unpack("=I", rows.get(4, bytes(4)))[0],
        "hwtype": hwtype,
        "mac": ":".join(f"{byte:02x}" for byte in mac) if any(mac) else None,
        "link_kind": _text(nested.get(1, b"")) or None,
    }


def _address(body: bytes) -> tuple[int, str, str | None]:
    family, prefix, _, _, index = struct.unpack_from("=BBBBi", body)
    rows = attributes(body[8:])
    raw = rows.get(2) or rows.get(1)
    if family not in {socket.AF_INET, socket.AF_INET6} or raw is None:
        return index, "", None
    return index, _text(rows.get(3, b"")), f"{socket.inet_ntop(family, raw)}/{prefix}"


def _text(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode(errors="replace")
