"""Interfaces and routes."""

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any

from allready.errors import FactUnavailable
from allready.facts.bonds import bonds
from allready.facts.host import Host, number, text_of
from allready.model import Interface, NetFacts, Route, RoutingRule

MAX_INTERFACES = 96  # a Kubernetes node has a veth per pod; those with addresses are kept first
MAX_ROUTES = 128
IFF_UP, IFF_LOOPBACK, IFF_RUNNING = 0x1, 0x8, 0x40
ARPHRD_INFINIBAND, ARPHRD_LOOPBACK, ARPHRD_ETHER = 32, 772, 1
KINDS = {
    "bridge": "bridge", "openvswitch": "bridge", "veth": "veth", "netkit": "veth", "vlan": "vlan",
    "bond": "bond", "bonding": "bond", "team": "bond", "ipoib": "infiniband", "dummy": "other", "ifb": "other",
    "macvlan": "other", "ipvlan": "other", "macvtap": "other", "vrf": "other",
    **dict.fromkeys(
        ("tun", "tap", "gre", "gretap", "erspan", "ip6gre", "ip6gretap", "ip6tnl", "ipip", "sit", "vti", "vti6",
         "vxlan", "geneve", "wireguard", "xfrm"), "tunnel",
    ),
}  # fmt: skip
"""rtnetlink's name of a virtual link (or the driver, where there is no netlink) -> `Interface.kind`."""
RTF_UP, RTF_REJECT, RTF_GATEWAY, RTF_ANYCAST, RTF_LOCAL = 0x1, 0x200, 0x2, 0x100000, 0x80000000


def collect_net(host: Host, *, timeout_s: float = 2.0) -> NetFacts:
    """Interfaces in the order of getifaddrs(3), and the routes of both families.

    Raises:
        FactUnavailable: the interfaces cannot be listed.  Unreadable routes are left out.
    """
    wireless = set(_wireless(text_of(host, "/proc/net/wireless")))
    found = parse_interfaces(host.probe("interfaces", timeout_s=timeout_s), wireless)
    shared = tuple(_shared_routes(host, timeout_s))
    first = {(r.destination, r.metric, r.interface) for r in shared}
    routes = (
        *shared,
        *(
            r
            for r in parse_routes(text_of(host, "/proc/net/route"))
            if (r.destination, r.metric, r.interface) not in first
        ),
        *parse_ipv6_routes(text_of(host, "/proc/net/ipv6_route")),
    )
    with_address = [i for i in found if i.addresses]
    others = [i for i in found if not i.addresses]
    return NetFacts(
        interfaces=tuple((with_address + others)[:MAX_INTERFACES]),
        routes=tuple(sorted(routes, key=lambda r: r.gateway is None)[:MAX_ROUTES]),
        local_port_range=_port_range(text_of(host, "/proc/sys/net/ipv4/ip_local_port_range")),
        tcp_mtu_probing=number(text_of(host, "/proc/sys/net/ipv4/tcp_mtu_probing")),
        tcp_retries2=number(text_of(host, "/proc/sys/net/ipv4/tcp_retries2")),
        rp_filter=dict(_rp_filter(host, found)),
        somaxconn=number(text_of(host, "/proc/sys/net/core/somaxconn")),
        bonds=tuple(bonds(host)),
        reserved_ports=tuple(_reserved(text_of(host, "/proc/sys/net/ipv4/ip_local_reserved_ports"))),
        routing_rules=tuple(_routing_rules(host, timeout_s)),
    )


def _shared_routes(host: Host, timeout_s: float) -> Iterator[Route]:
    """Every way of the routes that have several; none where the kernel is not to be asked."""
    try:
        # A router with a million routes takes a second for them, which the other facts are not to wait for.
        for row in host.probe("shared_routes", timeout_s=min(timeout_s, SHARED_S))[:MAX_ROUTES]:
            for name, gateway in row["ways"]:
                yield Route(
                    destination=str(row["destination"]),
                    interface=str(name),
                    gateway=gateway,
                    metric=int(row["metric"]),
                    is_shared=True,
                )
    except (FactUnavailable, KeyError, TypeError, ValueError, AttributeError):
        return


KERNEL_RULES = {(0, 255), (32766, 254), (32767, 253)}
"""Priority and table of the rules that every machine has: local, main, default."""
MAX_RULES = 64
SHARED_S = 0.5


def _routing_rules(host: Host, timeout_s: float) -> Iterator[RoutingRule]:
    try:
        rows = host.probe("routing_rules", timeout_s=timeout_s)
        yield from dict.fromkeys(map(_rule, filter(_is_own, rows[:MAX_RULES])))
    except (FactUnavailable, KeyError, TypeError, ValueError, AttributeError):
        return


def _is_own(row: dict[str, Any]) -> bool:
    return len(row) > 2 or (row["priority"], row["table"]) not in KERNEL_RULES


def _rule(row: dict[str, Any]) -> RoutingRule:
    words = [f"{int(row['priority'])}: from {row.get('source', 'all')}"]
    words += [
        f"{word} {row[name]}" for name, word in (("destination", "to"), ("iif", "iif"), ("oif", "oif")) if name in row
    ]
    words += [f"fwmark {int(row['mark']):#x}"] if "mark" in row else []
    text = f"{' '.join(words)} lookup {TABLES.get(row['table'], row['table'])}"[:160]
    return RoutingRule(text=text, source=row.get("source"), is_marked="mark" in row)


TABLES = {255: "local", 254: "main", 253: "default"}


def _rp_filter(host: Host, interfaces: Iterable[Interface]) -> Iterator[tuple[str, int]]:
    every = number(text_of(host, "/proc/sys/net/ipv4/conf/all/rp_filter"))
    for interface in interfaces:
        own = number(text_of(host, f"/proc/sys/net/ipv4/conf/{interface.name}/rp_filter"))
        if every is not None and own is not None and interface.addresses:
            yield interface.name, max(every, own)


def parse_interfaces(rows: Any, wireless: set[str]) -> list[Interface]:
    """The answer of the probe "interfaces" as facts."""
    try:
        return [_interface(row, wireless) for row in rows]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FactUnavailable("the list of interfaces is not readable: {error}", error=type(error).__name__) from error


def parse_routes(text: str) -> Iterator[Route]:
    """Rows of /proc/net/route that are up; anything else is passed over."""
    for line in text.splitlines()[1:]:
        row = line.split()
        try:
            flags = int(row[3], 16)
            if not flags & RTF_UP or flags & RTF_REJECT:
                continue
            # The kernel prints these as host-endian words; every machine with GPUs is little-endian.
            start, gateway, mask = (int.from_bytes(bytes.fromhex(row[i]), "little") for i in (1, 2, 7))
            yield Route(
                destination=str(ipaddress.IPv4Network((start, mask.bit_count()))),
                interface=row[0],
                gateway=str(ipaddress.IPv4Address(gateway)) if flags & RTF_GATEWAY else None,
                metric=int(row[6]),
            )
        except (IndexError, ValueError):
            continue


def parse_ipv6_routes(text: str) -> Iterator[Route]:
    """Unicast rows of /proc/net/ipv6_route that lead off this machine, without the link-local ones."""
    for line in text.splitlines():
        row = line.split()
        try:
            flags = int(row[8], 16)
            if not flags & RTF_UP or flags & (RTF_REJECT | RTF_LOCAL | RTF_ANYCAST) or row[9] == "lo":
                continue
            network = ipaddress.IPv6Network((int(row[0], 16), int(row[1], 16)))
            if network.is_link_local or network.is_multicast:
                continue
            yield Route(
                destination=str(network),
                interface=row[9],
                gateway=str(ipaddress.IPv6Address(int(row[4], 16))) if flags & RTF_GATEWAY else None,
                metric=int(row[5], 16),
            )
        except (IndexError, ValueError):
            continue


def _interface(row: Any, wireless: set[str]) -> Interface:
    flags, hwtype = int(row["flags"]), int(row["hwtype"])
    loopback = bool(flags & IFF_LOOPBACK)
    name, driver, speed = str(row["name"]), row.get("driver"), row.get("speed_mbit_per_s")
    kind = KINDS.get(str(row.get("link_kind"))) or KINDS.get(str(driver))
    if loopback or hwtype == ARPHRD_LOOPBACK:
        kind = "loopback"
    elif hwtype == ARPHRD_INFINIBAND:
        kind = "infiniband"
    elif name in wireless:
        kind = "wireless"
    elif kind is None:
        kind = "ethernet" if hwtype == ARPHRD_ETHER else "tunnel" if hwtype in _TUNNEL_TYPES else "other"
    return Interface(
        name=name,
        is_up=flags & (IFF_UP | IFF_RUNNING) == IFF_UP | IFF_RUNNING,
        is_loopback=loopback,
        mtu_bytes=int(row["mtu"]),
        addresses=tuple(str(ipaddress.ip_interface(address)) for address in row["addresses"]),
        speed_mbit_per_s=int(speed) if speed else None,
        kind=kind,
        mac=str(row["mac"]) if row.get("mac") and not loopback else None,
        driver=str(driver) if driver else None,
    )


_TUNNEL_TYPES = {512, 768, 769, 776, 778, 823, 65534}  # ARPHRD_ PPP, TUNNEL, TUNNEL6, SIT, IPGRE, IP6GRE, NONE (tun)


def _wireless(text: str) -> Iterator[str]:
    for line in text.splitlines()[2:]:
        name, colon, _ = line.partition(":")
        if colon:
            yield name.strip()


def _port_range(text: str) -> tuple[int, int] | None:
    match list(map(number, text.split())):
        case [int(low), int(high)]:
            return low, high
    return None


def _reserved(text: str) -> Iterator[tuple[int, int]]:
    """Ranges of "29500-29510,8080"."""
    for part in text.strip().split(",")[:MAX_ROUTES]:
        low, _, high = part.partition("-")
        if (first := number(low)) is not None and (last := number(high or low)) is not None:
            yield first, last
