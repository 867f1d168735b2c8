"""Pieces of made-up evidence that several tests of this folder need."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from allready.model import (
    ChoiceError,
    ChoiceFault,
    Fleet,
    HostFacts,
    Interface,
    InterfaceChoice,
    NetFacts,
    PathProbe,
    RdmaFacts,
    RdmaPort,
    Reachability,
    RollCall,
    TransportFacts,
)
from tests.fleets import address_of, fleet, healthy_node, healthy_path, healthy_reach, healthy_roll

SILENT: dict[str, Any] = {
    "outcome": "filtered", "passed_bytes": (), "rtt_s": None, "throughput_gb_per_s": None, "src_address": None,
    "duration_s": 1.5,
}  # fmt: skip
REFUSED: dict[str, Any] = {**SILENT, "outcome": "refused", "duration_s": 0.001}
NO_ROUTE: dict[str, Any] = {**SILENT, "outcome": "no_route"}
UNHEARD: dict[str, Any] = {"received_bytes": ()}


def stuck(size_bytes: int, *passed: int) -> dict[str, Any]:
    """A path that came up and stopped at a payload."""
    return {
        "outcome": "stuck",
        "passed_bytes": passed,
        "stuck_bytes": size_bytes,
        "throughput_gb_per_s": None,
        "duration_s": 2.0,
    }


def both(a: int, b: int, change: dict[str, Any]) -> dict[tuple[int, int], dict[str, Any]]:
    """The same change in both directions."""
    return {(a, b): change, (b, a): change}


def net_of(node: int, num_nodes: int = 4) -> NetFacts:
    """The healthy node's interfaces."""
    facts = healthy_node(node, num_nodes).net
    assert isinstance(facts, NetFacts)
    return facts


def transport_of(node: int, num_nodes: int = 4) -> TransportFacts:
    """The healthy node's choices."""
    facts = healthy_node(node, num_nodes).transport
    assert isinstance(facts, TransportFacts)
    return facts


def host_of(node: int, num_nodes: int = 4) -> HostFacts:
    """The healthy node's machine."""
    facts = healthy_node(node, num_nodes).host
    assert isinstance(facts, HostFacts)
    return facts


def with_eth0(node: int, **changes: Any) -> NetFacts:
    """The healthy node's interfaces with another eth0."""
    net = net_of(node)
    return replace(net, interfaces=tuple(replace(i, **changes) if i.name == "eth0" else i for i in net.interfaces))


def plus(node: int, *more: Interface) -> NetFacts:
    """The healthy node's interfaces and some more."""
    net = net_of(node)
    return replace(net, interfaces=(*net.interfaces, *more))


def interface(name: str, *addresses: str, **changes: Any) -> Interface:
    """An interface that is up."""
    healthy = Interface(name=name, is_up=True, is_loopback=name == "lo", mtu_bytes=1500, addresses=addresses)
    return replace(healthy, **changes)


def choosing(
    library: str,
    node: int,
    name: str | None,
    address: str = "",
    *,
    pattern: str | None = None,
    fault: ChoiceFault | None = None,
    named: str = "",
) -> TransportFacts:
    """A healthy node, but one library chose this interface (None: none)."""
    choice = InterfaceChoice(
        variable=f"{library.upper()}_SOCKET_IFNAME",
        pattern=pattern,
        interfaces=(name,) if name else (),
        addresses=(address,) if address else (),
        failure=ChoiceError(fault=fault, name=named or pattern or "") if fault is not None else None,
    )
    return replace(transport_of(node), **{library: choice})


def choosing_both(node: int, name: str, address: str, pattern: str | None = None) -> TransportFacts:
    """Both libraries chose this interface."""
    nccl = choosing("nccl", node, name, address, pattern=pattern)
    return replace(nccl, gloo=choosing("gloo", node, name, address, pattern=pattern).gloo)


def reached(num_nodes: int, *more: PathProbe, **changes: Any) -> Fleet:
    """A fleet whose probes ended so: `paths` and `datagrams` as for `healthy_reach`."""
    reach = healthy_reach(num_nodes, changes.pop("paths", None), changes.pop("datagrams", None))
    return fleet(num_nodes, reach=replace(reach, paths=(*reach.paths, *more)), **changes)


def second_network(
    num_nodes: int,
    paths: Mapping[tuple[int, int], Mapping[str, Any]] | None = None,
    datagrams: Mapping[tuple[int, int], Mapping[str, Any]] | None = None,
) -> Fleet:
    """All is well over eth0, and eth1 is like that."""
    first, other = healthy_reach(num_nodes), healthy_reach(num_nodes, paths, datagrams)
    there = {a: f"10.9.0.{n}" for n in range(num_nodes) for a in [address_of(n)]}
    more = tuple(replace(p, address=there[p.address], interface="eth1", port=p.port + 100) for p in other.paths)
    probes = tuple(replace(d, address=there[d.address]) for d in other.datagrams)
    reach = replace(first, paths=(*first.paths, *more), datagrams=(*probes, *first.datagrams))
    return fleet(num_nodes, reach=reach)


def master_path(src: int) -> PathProbe:
    """The check's own connection."""
    return healthy_path(src, 0, kind="master", port=29500, interface=None, passed_bytes=())


def elsewhere(num_nodes: int) -> RollCall:
    """All nodes talk to node 0 over another network than the one that is probed."""
    roll = healthy_roll(num_nodes)
    return replace(roll, claims=tuple(replace(c, address=f"192.168.7.{c.node_rank + 1}") for c in roll.claims))


def not_looked_at(num_nodes: int = 2) -> Fleet:
    """Reachability was not tried."""
    return fleet(num_nodes, reach=None, why_not={"reach": "--stages facts"})


def datagrams_of(reach: Reachability) -> Reachability:
    """The same without datagrams: no rank could send any."""
    return replace(reach, datagrams=())


def ports(count: int, **changes: Any) -> RdmaFacts:
    """InfiniBand ports that are up."""
    healthy = RdmaPort(
        device="", port=1, state="ACTIVE", physical_state="LinkUp", link_layer="InfiniBand", rate_gbit_per_s=400.0
    )
    return RdmaFacts(ports=tuple(replace(healthy, device=f"mlx5_{i}", **changes) for i in range(count)))


def with_down(count: int, *down: int) -> RdmaFacts:
    """The same, some of them down."""
    return RdmaFacts(
        ports=tuple(
            replace(p, state="DOWN", physical_state="Disabled", rate_gbit_per_s=10.0) if i in down else p
            for i, p in enumerate(ports(count).ports)
        )
    )


def eights(num_nodes: int, **odd: RdmaFacts) -> dict[int, RdmaFacts]:
    """Eight ports on every node, other ones on those that are named n0, n1, ..."""
    return {n: odd.get(f"n{n}", ports(8)) for n in range(num_nodes)}
