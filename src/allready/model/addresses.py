"""IP addresses and ports as text."""

import functools
import ipaddress
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_PORT_DIGITS = 9
"""Noughts in front count; a number that has more is not read."""


@functools.lru_cache(maxsize=65536)
def parse(address: str) -> Address | None:
    """The address without its zone and prefix length, an IPv4-mapped one as IPv4; None when it is a name or garbage."""
    try:
        parsed = ipaddress.ip_address(address.strip("[]").partition("/")[0].partition("%")[0])
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


def plain_address(address: str) -> str:
    """`10.0.0.1` for `::ffff:10.0.0.1`, and no zone; what is no address stays as it is."""
    return str(parse(address) or address)


@functools.lru_cache(maxsize=65536)
def parse_network(text: str) -> Network | None:
    """`10.0.0.0/24`, or the network of `10.0.0.1/24`; None when it is neither."""
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def is_within(address: str, networks: Iterable[str]) -> bool:
    """Whether one of `networks` has this address."""
    wanted = parse(address)
    return wanted is not None and any((n := parse_network(text)) is not None and wanted in n for text in networks)


def is_name(address: str) -> bool:
    """Whether it must be resolved, so that it may be another address elsewhere."""
    return parse(address) is None


def is_loopback(address: str) -> bool:
    """127.0.0.0/8 or ::1."""
    parsed = parse(address)
    return parsed is not None and parsed.is_loopback


def all_loopback(addresses: tuple[str, ...]) -> bool:
    """There are addresses, and none leads off this machine."""
    return bool(addresses) and all(is_loopback(a) for a in addresses)


def is_misnamed(master: str, addresses: tuple[str, ...]) -> bool:
    """A name that resolves to loopback.  A literal localhost or 127.0.0.1 may be intended: all nodes on one machine."""
    return all_loopback(addresses) and not is_literal_loopback(master)


def is_literal_loopback(master: str) -> bool:
    """MASTER_ADDR as given is localhost or a loopback address."""
    return master == "localhost" or is_loopback(master)


def endpoint(address: str | None, port: int) -> str:
    """`10.0.0.1:29500`, `[fd00::1]:29500`."""
    return f"[{address}]:{port}" if address and ":" in address else f"{address or '?'}:{port}"


def split_endpoint(address: str) -> tuple[str, int] | None:
    """The way back, with or without brackets around IPv6; None where there is no host or no port."""
    host, _, port = address.rpartition(":")
    host, number = host.strip("[]"), int(port) if port.isdecimal() and len(port) <= _PORT_DIGITS else 0
    return (host, number) if host and 0 < number < 65536 else None
