"""The lab's network as data: addresses, and the operations that `allready.lab.netlink` carries out.

hub (a net namespace of its own)          node r
  lab0 (bridge) --- node{r} (veth) ------- eth0  10.77.0.{r+1}/24, fd00:77::{r+1}/64
"""

import ipaddress

from msgspec import Struct

from allready.errors import UsageError
from allready.lab.record import Record

BRIDGE = "lab0"
INTERFACE = "eth0"
MAX_NODES = 200
HUB = -1
"""Where an operation runs: a node rank, or the hub."""

Op = dict[str, str | int]
"""One netlink operation: "op", "at" (node rank or HUB) and what the operation needs."""


class LabView(Struct, frozen=True):
    """What a fault may know about the lab it is applied to."""

    num_nodes: int
    subnet: ipaddress.IPv4Network
    subnet6: ipaddress.IPv6Network | None
    mtu_bytes: int

    @classmethod
    def of(cls, record: Record) -> "LabView":
        return cls.checked(record.num_nodes, record.subnet, record.subnet6, record.mtu_bytes)

    @classmethod
    def checked(cls, num_nodes: int, subnet: str, subnet6: str, mtu_bytes: int) -> "LabView":
        """Parse and check what a person asked for."""
        if not 1 <= num_nodes <= MAX_NODES:
            raise UsageError("a lab has 1 to {limit} nodes, not {num_nodes}", limit=MAX_NODES, num_nodes=num_nodes)
        try:
            network = ipaddress.IPv4Network(subnet)
            network6 = ipaddress.IPv6Network(subnet6) if subnet6 else None
        except ValueError as error:
            raise UsageError(
                "not a subnet: {error}; write for example 10.77.0.0/24 and fd00:77::/64", error=error
            ) from error
        for net in (network, network6):
            if net is not None and net.num_addresses < num_nodes + 2:
                raise UsageError("{net} has no room for {num_nodes} nodes", net=net, num_nodes=num_nodes)
        if (
            network.is_loopback
            or network.is_multicast
            or (network6 and (network6.is_multicast or network6.is_loopback))
        ):
            raise UsageError("{subnet} is not usable between nodes", subnet=subnet)
        if not 1280 <= mtu_bytes <= 65535:
            raise UsageError("an MTU is 1280 to 65535 bytes, not {mtu_bytes}", mtu_bytes=mtu_bytes)
        return cls(num_nodes=num_nodes, subnet=network, subnet6=network6, mtu_bytes=mtu_bytes)

    def name(self, node: int) -> str:
        return f"node{node}"

    def port(self, node: int) -> str:
        """The hub's end of a node's cable."""
        return f"node{node}"

    def address(self, node: int) -> str:
        return str(self.subnet[node + 1])

    def address6(self, node: int) -> str | None:
        """A node's IPv6 address; None when the lab has no IPv6."""
        return None if self.subnet6 is None else str(self.subnet6[node + 1])

    def sources(self, node: int) -> tuple[str, ...]:
        """nft matches for packets that come from `node`, one per address family."""
        address6 = self.address6(node)
        return (f"ip saddr {self.address(node)}", *([f"ip6 saddr {address6}"] if address6 else []))


def build(lab: LabView) -> list[Op]:
    """The operations that make a network of bare namespaces.

    Segmentation offload is off on every interface, so that what crosses a cable are packets of real sizes: a rule
    that drops by length or by chance then affects single packets.
    """
    ops: list[Op] = [
        {"op": "up", "at": HUB, "name": "lo"},
        {"op": "bridge", "at": HUB, "name": BRIDGE, "mtu_bytes": lab.mtu_bytes},
    ]
    for node in range(lab.num_nodes):
        ops.append(
            {
                "op": "veth",
                "at": HUB,
                "name": lab.port(node),
                "peer": INTERFACE,
                "peer_at": node,
                "mtu_bytes": lab.mtu_bytes,
                "bridge": BRIDGE,
            }
        )
        ops.append({"op": "packet_sizes", "at": HUB, "name": lab.port(node)})
        ops.append({"op": "up", "at": HUB, "name": lab.port(node)})
    for node in range(lab.num_nodes):
        ops.append({"op": "hostname", "at": node, "name": lab.name(node)})
        ops.append({"op": "up", "at": node, "name": "lo"})
        ops.append({"op": "packet_sizes", "at": node, "name": INTERFACE})
        ops.append(
            {"op": "address", "at": node, "name": INTERFACE, "address": f"{lab.address(node)}/{lab.subnet.prefixlen}"}
        )
        ops.append({"op": "up", "at": node, "name": INTERFACE})
        if lab.subnet6 is not None:
            address6 = f"{lab.address6(node)}/{lab.subnet6.prefixlen}"
            ops.append({"op": "address", "at": node, "name": INTERFACE, "address": address6, "optional": 1})
    return ops
