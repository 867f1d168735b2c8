"""Faults of cables and interfaces."""

import ipaddress
import re
import zlib
from dataclasses import dataclass
from typing import ClassVar, Literal

from allready.lab.faults.base import Effect, Fault, Links
from allready.lab.network import HUB, INTERFACE, LabView, Op


@dataclass(frozen=True, kw_only=True)
class LinkDown(Fault):
    """The cable of `node` is pulled at the switch: eth0 stays configured and loses its carrier."""

    kind: ClassVar[str] = "link_down"
    slot: ClassVar[str] = "cable"
    node: int  # the node whose cable is pulled

    def effects(self, lab: LabView) -> tuple[Effect, ...]:
        port = lab.port(self.node)
        return (Links(({"op": "down", "at": HUB, "name": port},), ({"op": "up", "at": HUB, "name": port},)),)


@dataclass(frozen=True, kw_only=True)
class SlowLink(Fault):
    """The link of `node` carries no more than a given rate (token bucket filter)."""

    kind: ClassVar[str] = "slow_link"
    node: int  # the node with the slow link
    rate_mbit_per_s: float  # megabits per second, each direction on its own
    direction: Literal["in", "out", "both"] = "both"  # in, out or both, seen from the node

    def problem(self) -> str | None:
        return None if 0.05 <= self.rate_mbit_per_s <= 30_000 else "rate_mbit_per_s is 0.05 to 30000"

    def slots_taken(self) -> tuple[tuple[str, ...], ...]:
        ways = ("in", "out") if self.direction == "both" else (self.direction,)
        return tuple(("rate", way, str(self.node)) for way in ways)

    def effects(self, lab: LabView) -> tuple[Effect, ...]:
        bit_per_s = round(self.rate_mbit_per_s * 1e6)
        # The bucket must hold what arrives between two timer ticks (4 ms), and some packets of full size.
        burst_bytes = max(bit_per_s // 8 // 250, 4 * lab.mtu_bytes)
        queue_bytes = burst_bytes + max(bit_per_s // 8 // 20, 20 * lab.mtu_bytes)  # 50 ms
        ends = {"out": (self.node, INTERFACE), "in": (HUB, lab.port(self.node))}
        chosen = [end for way, end in ends.items() if self.direction in {way, "both"}]
        do: list[Op] = [
            {
                "op": "rate",
                "at": at,
                "name": name,
                "bit_per_s": bit_per_s,
                "burst_bytes": burst_bytes,
                "queue_bytes": queue_bytes,
            }
            for at, name in chosen
        ]
        return (Links(tuple(do), tuple({"op": "no_rate", "at": at, "name": name} for at, name in chosen)),)


@dataclass(frozen=True, kw_only=True)
class InterfaceMtu(Fault):
    """eth0 of `node` has another MTU than its peers."""

    kind: ClassVar[str] = "interface_mtu"
    slot: ClassVar[str] = "mtu"
    node: int  # the node that differs
    mtu_bytes: int  # its MTU

    def problem(self) -> str | None:
        # Below 1280 the kernel takes IPv6 off the interface, and would not give it back.
        return None if 1280 <= self.mtu_bytes <= 65535 else "mtu_bytes is 1280 to 65535"

    def effects(self, lab: LabView) -> tuple[Effect, ...]:
        op: Op = {"op": "mtu", "at": self.node, "name": INTERFACE}
        return (Links((op | {"mtu_bytes": self.mtu_bytes},), (op | {"mtu_bytes": lab.mtu_bytes},)),)


@dataclass(frozen=True, kw_only=True)
class SecondInterface(Fault):
    """Several nodes get one more interface, all with the same address, as docker0 has on every host."""

    kind: ClassVar[str] = "second_interface"
    nodes: tuple[int, ...]  # the nodes that get it
    address: str = "172.17.0.1/16"  # its address with prefix length
    ifname: str = "docker0"  # its name
    carrier: bool = True  # false: it is up without a carrier, as docker0 without containers

    def problem(self) -> str | None:
        if not self.nodes or len(set(self.nodes)) != len(self.nodes):
            return "nodes names each node once, and at least one"
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,14}", self.ifname) or self.ifname in {INTERFACE, "lo"}:
            return f"{self.ifname!r} is no name for a second interface"
        try:
            ipaddress.ip_interface(self.address)
        except ValueError:
            return f"{self.address!r} is no address such as 172.17.0.1/16"
        return None

    def slots_taken(self) -> tuple[tuple[str, ...], ...]:
        return tuple(("interface", self.ifname, str(node)) for node in self.nodes)

    def effects(self, lab: LabView) -> tuple[Effect, ...]:
        do: list[Op] = []
        undo: list[Op] = []
        for node in self.nodes:
            # The other end stays in the hub, connected to nothing; the checksum keeps several interfaces apart.
            port = f"x{node}-{zlib.crc32(self.ifname.encode()) & 0xFFFF:04x}"
            do.append(
                {
                    "op": "veth",
                    "at": HUB,
                    "name": port,
                    "peer": self.ifname,
                    "peer_at": node,
                    "mtu_bytes": lab.mtu_bytes,
                }
            )
            if self.carrier:
                do.append({"op": "up", "at": HUB, "name": port})
            do.append({"op": "address", "at": node, "name": self.ifname, "address": self.address})
            do.append({"op": "up", "at": node, "name": self.ifname})
            undo.append({"op": "delete", "at": node, "name": self.ifname})
        return (Links(tuple(do), tuple(undo)),)
