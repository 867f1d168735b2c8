"""Where the addresses of a name come from, what is on a path, and which nodes called at node 0 without joining."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from allready.judging.stated import Text, said
from allready.model import (
    Caller,
    FirewallFacts,
    HostsLine,
    LaunchFacts,
    MasterContactFacts,
    NetFacts,
    Phrase,
    RollCall,
    TokenGap,
)
from allready.model.addresses import endpoint, is_loopback, is_within, parse
from allready.patterns import compiled

_PRIVATE_BRIDGE = r"docker\d*|docker_gwbridge|virbr\d+|lxcbr\d+|lxdbr\d+|podman\d+|cni\d+|br-[0-9a-f]{12}"


def own_addresses(net: NetFacts | None) -> set[str]:
    """Every address of every interface, without prefix length; empty where they are not known."""
    return {a for i in net.interfaces for a in i.bare_addresses} if net is not None else set()


def on_link(net: NetFacts | None, address: str | None) -> bool:
    """Whether `address` is in a subnet that this node is directly connected to, with no router between."""
    interfaces = [i for i in net.interfaces if i.is_up and not i.is_loopback] if net is not None else []
    return is_within(address or "", (a for i in interfaces for a in i.addresses))


def has_route(net: NetFacts, address: str) -> bool:
    """Whether any route or connected subnet of this node covers `address`; True when no routes are known."""
    if parse(address) is None or not net.routes or on_link(net, address):
        return True
    return is_within(address, (route.destination for route in net.routes))


def job_of(launch: Mapping[int, LaunchFacts]) -> LaunchFacts:
    """The command as node 0 was given it, or as the first node was."""
    return launch.get(0) or next(iter(launch.values()))


def master_endpoint(contact: MasterContactFacts) -> str:
    """Where this node tries node 0."""
    return endpoint(contact.address or contact.master_addr, contact.master_port)


def reached(contact: MasterContactFacts | None) -> bool:
    """Whether this node has exchanged messages with node 0 of its own job, with whatever outcome."""
    return contact is not None and contact.outcome in {"joined", "rejected", "lost"}


def others_joined(roll: RollCall | None, contacts: Iterable[MasterContactFacts] = ()) -> bool:
    """Whether a node other than node 0 reached it."""
    return any(map(reached, contacts)) or (roll is not None and bool(set(roll.present) - {0}))


def is_own(contact: MasterContactFacts, net: NetFacts | None) -> bool:
    """Whether what this node tries for node 0 is an address of one of its own interfaces other than loopback."""
    return contact.address in own_addresses(net) and not is_loopback(contact.address or "")


def is_refused_by_filter(contact: MasterContactFacts) -> bool:
    """A refusal that a packet filter sent: node 0 answers by UDP, or an ICMP message ended the connection."""
    return contact.outcome == "refused" and bool(contact.heard_by_datagram or contact.rejected_by)


def host_is_silent(contact: MasterContactFacts, net: NetFacts | None) -> bool:
    """Whether "no route" means that the machine does not respond, not that the kernel has no route.

    On a connected subnet only the machine itself answers for its address; EHOSTUNREACH there is a neighbour that does
    not.  Beyond a router the same errno is the router's answer about the route.
    """
    kernels_own = {"ENETUNREACH", "EINVAL", "EACCES", "EPERM", "ENETDOWN"}
    return contact.outcome == "no_route" and contact.error not in kernels_own and on_link(net, contact.address)


def drops_port(firewall: FirewallFacts | None, port: int) -> bool:
    """Whether this node's own packet filter drops incoming TCP packets to `port`."""
    return firewall is not None and any(low <= port <= high for low, high in firewall.dropped_ports)


def drops_out(firewall: FirewallFacts | None, port: int) -> bool:
    """Whether this node's own packet filter drops its own TCP connections to `port` of another machine."""
    return firewall is not None and any(low <= port <= high for low, high in firewall.out_dropped_ports)


def datagram_callers(roll: RollCall | None) -> dict[int, Caller]:
    """Nodes that did not join and whose UDP datagrams arrived, by node rank."""
    if roll is None:
        return {}
    here = set(roll.present)
    return {r: c for c in roll.callers if c.kind == "datagram" and (r := c.node_rank) is not None and r not in here}


def calling_addresses(roll: RollCall | None, nodes: Sequence[int]) -> list[str]:
    """The addresses of these nodes, where the datagrams of all of them arrived; else none."""
    calling = datagram_callers(roll)
    return [calling[n].address for n in nodes] if all(n in calling for n in nodes) else []


def is_rejected(caller: Caller) -> bool:
    """A datagram caller whose TCP connection was refused although we listen: a packet filter rejects it."""
    return caller.kind == "datagram" and caller.tcp == "refused"


def half_open_callers(roll: RollCall) -> tuple[tuple[int, ...], tuple[Caller, ...]]:
    """Nodes whose SYN arrives and whose handshake never completes, and those callers.

    A SYN does not carry a node rank.  Nodes are named only when the callers are as many as the nodes of which there is
    no other sign; otherwise the first part is empty.
    """
    known = {c.address for c in roll.claims if c.refused is None} | {c.address for c in datagram_callers(roll).values()}
    callers = {c.address: c for c in roll.callers if c.kind == "half_open" and c.address not in known}
    silent = unseen_nodes(roll)
    found = tuple(callers[a] for a in sorted(callers))
    return (silent if found and len(found) == len(silent) else ()), found


def unseen_nodes(roll: RollCall) -> tuple[int, ...]:
    """Missing nodes that neither claimed their rank nor sent a datagram, nor came without the job's token."""
    outside = (c.node_rank for c in roll.callers if TokenGap.of(c.kind) is not None)
    known = {*datagram_callers(roll), *(c.node_rank for c in roll.claims), *outside}
    return tuple(r for r in roll.missing if r not in known)


def is_private(name: str) -> bool:
    """Whether an interface of this name leads, by convention, only to containers or guests of its own machine."""
    return compiled(_PRIVATE_BRIDGE).fullmatch(name) is not None


def hosts_lines(lines: Iterable[HostsLine], addresses: Collection[str]) -> str | None:
    """ "3, 7": the lines of the hosts file that give these addresses; None where another source of the resolver did."""
    return ", ".join(str(one.line) for one in lines if one.address in addresses) or None


def resolved(name: str, addresses: Sequence[str], lines: Iterable[HostsLine], error: Text = "") -> Phrase:
    """What a name resolves to, with the lines of the hosts file that say so.

    lines: that the hosts file has for this name; none where another source of the resolver gave the addresses.
    error: the resolver's, where there are no addresses.
    """
    form = "{name} -> {addresses}[[ (/etc/hosts line {lines})]]"
    return said(form, name=name, addresses=", ".join(addresses) or error, lines=hosts_lines(lines, addresses))
