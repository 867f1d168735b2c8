"""What rules about names, ports and the roll call share: addresses, and who was heard of without being in the roll."""

import functools
import ipaddress

from allready.model import Caller, FirewallFacts, MasterContactFacts, NetFacts, RollCall


@functools.lru_cache(maxsize=4096)
def parse(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address without its zone, an IPv4-mapped one as IPv4; None when it is a name or garbage."""
    try:
        parsed = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


def is_name(address: str) -> bool:
    """Whether it has to be looked up, so that it may mean something else elsewhere."""
    return parse(address) is None


def is_loopback(address: str) -> bool:
    """127.0.0.0/8 or ::1."""
    parsed = parse(address)
    return parsed is not None and parsed.is_loopback


def all_loopback(addresses: tuple[str, ...]) -> bool:
    """There are addresses, and none leads off this machine."""
    return bool(addresses) and all(is_loopback(a) for a in addresses)


def is_misnamed(master: str, addresses: tuple[str, ...]) -> bool:
    """A name that means this very machine.  Literally localhost or 127.0.0.1 may be meant: all nodes on one machine."""
    return all_loopback(addresses) and not is_literal_loopback(master)


def is_literal_loopback(master: str) -> bool:
    """MASTER_ADDR as typed is localhost or a loopback address."""
    return master == "localhost" or is_loopback(master)


def own_addresses(net: NetFacts) -> set[str]:
    """Every address of every interface, without prefix length."""
    return {a.partition("/")[0] for i in net.interfaces for a in i.addresses}


def on_link(net: NetFacts, address: str) -> bool:
    """Whether `address` lies in a subnet that this node is directly connected to, so that no router stands between."""
    wanted = parse(address)
    for interface in net.interfaces:
        for cidr in interface.addresses if interface.is_up and not interface.is_loopback else ():
            try:
                network = ipaddress.ip_interface(cidr).network
            except ValueError:
                continue
            if wanted is not None and wanted.version == network.version and wanted in network:
                return True
    return False


def has_route(net: NetFacts, address: str) -> bool:
    """Whether any route or connected subnet of this node covers `address`; True when no routes are known."""
    wanted = parse(address)
    if wanted is None or not net.routes or on_link(net, address):
        return True
    for route in net.routes:
        try:
            network = ipaddress.ip_network(route.destination, strict=False)
        except ValueError:
            continue
        if network.version == wanted.version and wanted in network:
            return True
    return False


def endpoint(address: str | None, port: int) -> str:
    """`10.0.0.1:29500`, `[fd00::1]:29500`."""
    return f"[{address}]:{port}" if address and ":" in address else f"{address or '?'}:{port}"


def reached(contact: MasterContactFacts | None) -> bool:
    """This node has spoken with node 0 of its own job, whatever came of it."""
    return contact is not None and contact.outcome in {"joined", "rejected", "lost"}


def host_is_silent(contact: MasterContactFacts, net: NetFacts | None) -> bool:
    """Whether "no route" means that the machine itself gives no sign of life, not that the kernel knows no way.

    On a connected subnet nobody but the machine itself can answer for its address; EHOSTUNREACH there is a
    neighbour that does not.  Beyond a router the same errno is the router's word about the route.
    """
    kernels_own = {"ENETUNREACH", "EINVAL", "EACCES", "EPERM", "ENETDOWN"}
    if contact.outcome != "no_route" or contact.error in kernels_own:
        return False
    return net is not None and contact.address is not None and on_link(net, contact.address)


def drops_port(firewall: FirewallFacts | None, port: int) -> bool:
    """Whether this node's own packet filter drops incoming TCP packets to `port`."""
    return firewall is not None and any(low <= port <= high for low, high in firewall.dropped_ports)


def drops_out(firewall: FirewallFacts | None, port: int) -> bool:
    """Whether this node's own packet filter drops its own TCP connections to `port` of another machine."""
    return firewall is not None and any(low <= port <= high for low, high in firewall.out_dropped_ports)


def datagram_callers(roll: RollCall) -> dict[int, Caller]:
    """Nodes outside the roll whose UDP call arrived, by node rank."""
    here = set(roll.present)
    return {
        c.node_rank: c
        for c in roll.callers
        if c.kind == "datagram" and c.node_rank is not None and c.node_rank not in here
    }


def is_rejected(caller: Caller) -> bool:
    """A datagram caller whose TCP connection was refused although we listen: a packet filter rejects it."""
    return caller.kind == "datagram" and caller.tcp == "refused"


def half_open_callers(roll: RollCall) -> tuple[tuple[int, ...], tuple[Caller, ...]]:
    """Nodes whose SYN arrives and whose handshake never ends, and those callers.

    A SYN does not say which node sent it.  Nodes are named only when the callers are as many as the nodes of which
    there is no other sign; otherwise the first part is empty.
    """
    known = {c.address for c in roll.claims if c.refused is None} | {c.address for c in datagram_callers(roll).values()}
    callers = {c.address: c for c in roll.callers if c.kind == "half_open" and c.address not in known}
    claimed = {c.node_rank for c in roll.claims}
    silent = tuple(r for r in roll.missing if r not in claimed and r not in datagram_callers(roll))
    found = tuple(callers[a] for a in sorted(callers))
    return (silent if found and len(found) == len(silent) else ()), found
