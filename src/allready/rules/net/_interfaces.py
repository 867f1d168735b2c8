"""What addresses, interfaces and routes say about each other.  Facts come from other machines: nothing here raises."""

import functools
import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from allready.judging.nccl_defaults import nccl_nodes
from allready.model import (
    GpuFacts,
    HostFacts,
    Interface,
    InterfaceChoice,
    LaunchFacts,
    NetFacts,
    PerNode,
    RollCall,
    TransportFacts,
)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_PRIVATE_BRIDGE = re.compile(r"docker\d*|docker_gwbridge|virbr\d+|lxcbr\d+|lxdbr\d+|podman\d+|cni\d+|br-[0-9a-f]{12}")
_VETH = re.compile(r"veth.*")


@functools.lru_cache(maxsize=65536)
def parse_interface(text: str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface | None:
    """`10.0.0.1/24` as an address with its network; None when it is not one."""
    try:
        return ipaddress.ip_interface(text)
    except ValueError:
        return None


@functools.lru_cache(maxsize=65536)
def parse_address(text: str) -> Address | None:
    """`10.0.0.1` or `fe80::1%eth0` as an address; None when it is not one."""
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


@functools.lru_cache(maxsize=65536)
def parse_network(text: str) -> Network | None:
    """`10.0.0.0/24` as a network; None when it is not one."""
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def is_loopback(address: str) -> bool:
    """Whether this is an address of the machine to itself."""
    parsed = parse_address(address)
    return parsed is not None and parsed.is_loopback


def subnets(interface: Interface) -> list[Network]:
    """Networks that the interface is directly in, without loopback and link-local ones (every node has those)."""
    parsed = (parse_interface(a) for a in interface.addresses)
    return [p.network for p in parsed if p is not None and not p.ip.is_loopback and not p.ip.is_link_local]


def holder(net: NetFacts, address: str) -> Interface | None:
    """The interface that has this address."""
    wanted = parse_address(address)
    if wanted is None:
        return None
    for interface in net.interfaces:
        for text in interface.addresses:
            parsed = parse_interface(text)
            if parsed is not None and parsed.ip == wanted:
                return interface
    return None


def way_to(net: NetFacts, address: str) -> tuple[str, int] | None:
    """Name of the interface towards `address` and the length of the matching prefix (0: only the default route)."""
    wanted = parse_address(address)
    if wanted is None:
        return None
    found: list[tuple[int, int, str]] = []
    for interface in net.interfaces:
        if interface.is_up:
            found += [(n.prefixlen, 0, interface.name) for n in subnets(interface) if _within(wanted, n)]
    for route in net.routes:
        network = parse_network(route.destination)
        if network is not None and _within(wanted, network):
            found.append((network.prefixlen, -route.metric, route.interface))
    if not found:
        return None
    length, _, name = max(found)
    return name, length


def _within(address: Address, network: Network) -> bool:
    return address.version == network.version and address in network


def machine(net: NetFacts, host: HostFacts | None) -> tuple[object, ...]:
    """Equal for two nodes that are processes on one machine (and in one network namespace), else different."""
    cards = sorted((i.name, i.mac or "", i.addresses) for i in net.interfaces if not i.is_loopback)
    return (host.boot_id or host.hostname if host else "", tuple(cards))


def is_private(name: str) -> bool:
    """Whether an interface of this name leads, by all custom, only to containers or guests of its own machine."""
    return _PRIVATE_BRIDGE.fullmatch(name) is not None


def is_veth(name: str) -> bool:
    """Whether the name is that of the host's end of a container's cable; such a name may also be a real link."""
    return _VETH.fullmatch(name) is not None


class Chosen(Struct, frozen=True):
    """What one library chose on one node."""

    node: int
    backend: str  # NCCL or Gloo
    choice: InterfaceChoice
    needed: bool  # this job will use the library


def choices(
    transport: PerNode[TransportFacts], launch: PerNode[LaunchFacts] | None, gpu: PerNode[GpuFacts] | None
) -> Iterator[Chosen]:
    """NCCL's and Gloo's choice on every node.

    Gloo counts as needed in every torch job: CPU tensors, `monitored_barrier` and checkpoints use it beside NCCL.
    """
    users = nccl_nodes(transport, launch, gpu)
    for node, facts in transport.items():
        job = launch.get(node) if launch else None
        nccl = node in users
        yield Chosen(node, "NCCL", facts.nccl, nccl)
        yield Chosen(node, "Gloo", facts.gloo, job is None or job.framework != "jax" or not nccl)


def needed_choices(
    transport: PerNode[TransportFacts], launch: PerNode[LaunchFacts] | None, gpu: PerNode[GpuFacts] | None
) -> dict[int, list[Chosen]]:
    """Working choices of the libraries that the job uses, by node."""
    found: dict[int, list[Chosen]] = {}
    for chosen in choices(transport, launch, gpu):
        if chosen.needed and chosen.choice.error is None and chosen.choice.interfaces:
            found.setdefault(chosen.node, []).append(chosen)
    return found


def meeting_address(node: int, roll: RollCall | None) -> str | None:
    """The address by which node 0 sees this node: it is proven to work."""
    if roll is None:
        return None
    return next((c.address for c in roll.claims if c.node_rank == node and c.refused is None), None)


def good_interface(node: int, net: NetFacts, roll: RollCall | None, *, avoid: Iterable[str] = ()) -> str | None:
    """The interface that NCCL and Gloo should use on this node; None when none qualifies.

    First the one whose address node 0 sees, then the one that routes to the other nodes, then any that could.
    `avoid`: addresses that are no use (several nodes have them).
    """
    bad = {parse_address(a) for a in avoid}
    fit = {i.name for i in net.interfaces if _is_fit(i, bad)}
    seen_by_node_0 = meeting_address(node, roll)
    interface = holder(net, seen_by_node_0) if seen_by_node_0 else None
    if interface and interface.name in fit:
        return interface.name
    others = (c.address for c in (roll.claims if roll else ()) if c.node_rank != node and not is_loopback(c.address))
    for _, address in zip(range(4), others, strict=False):
        way = way_to(net, address)
        if way and way[0] in fit:
            return way[0]
    return min(fit, default=None)


def _is_fit(interface: Interface, bad: set[Address | None]) -> bool:
    if not interface.is_up or interface.is_loopback or is_private(interface.name) or is_veth(interface.name):
        return False
    own = [p for a in interface.addresses if (p := parse_interface(a)) is not None and not p.ip.is_link_local]
    return any(p.ip not in bad for p in own)


def good_interfaces(
    nodes: Iterable[int], net: Mapping[int, NetFacts], roll: RollCall | None, *, avoid: Iterable[str] = ()
) -> dict[int, str]:
    """`good_interface` of several nodes, without those that have none.  `roll` is read once."""
    nodes, avoid = list(nodes), tuple(avoid)
    found = {n: good_interface(n, net[n], roll, avoid=avoid) for n in nodes[:64] if n in net}
    return {n: name for n, name in found.items() if name is not None}


def shared_addresses(
    chosen: Mapping[int, list[Chosen]], net: Mapping[int, NetFacts], host: Mapping[int, HostFacts] | None
) -> dict[str, tuple[int, ...]]:
    """Address -> the nodes that chose it, where these are different machines.  Loopback is another fault's business."""
    users: dict[str, set[int]] = {}
    for node, items in chosen.items():
        for item in items:
            for address in item.choice.addresses:
                if not is_loopback(address):
                    users.setdefault(address, set()).add(node)
    found: dict[str, tuple[int, ...]] = {}
    for address, nodes in users.items():
        if len(nodes) > 1 and len({machine(net[n], host.get(n) if host else None) for n in nodes if n in net}) > 1:
            found[address] = tuple(sorted(nodes))
    return found
