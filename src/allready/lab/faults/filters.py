"""Faults that drop packets: firewalls, one-way paths, MTU black holes, loss."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from allready.lab.faults.base import Effect, Fault, PacketFilter
from allready.lab.network import LabView

_MAX_PORT = 65535


@dataclass(frozen=True, kw_only=True)
class PortDropped(Fault):
    """A firewall in front of `node` silently drops everything for one port."""

    kind: ClassVar[str] = "port_dropped"
    node: int  # the node that cannot be reached
    port: int  # destination port
    protocol: Literal["tcp", "udp"] = "tcp"  # tcp or udp
    source: int | None = None  # only what comes from this node

    def problem(self) -> str | None:
        return None if 1 <= self.port <= _MAX_PORT else f"port is 1 to {_MAX_PORT}, not {self.port}"

    def effects(self, lab: LabView) -> tuple[Effect, ...]:
        rule = f"{self.protocol} dport {self.port}"
        sources = ("",) if self.source is None else lab.sources(self.source)
        return (PacketFilter(self.node, tuple(f"{source} {rule}".strip() for source in sources)),)


@dataclass(frozen=True, kw_only=True)
class DataPortsDropped(Fault):
    """A firewall in front of `node` lets new TCP connections in on `keep` only; answers pass, as with a real one."""

    kind: ClassVar[str] = "data_ports_dropped"
    node: int  # the node behind the firewall
    keep: tuple[int, ...] = (29500,)  # ports that stay open

    def problem(self) -> str | None:
        wrong = [port for port in self.keep if not 1 <= port <= _MAX_PORT]
        return f"port {wrong[0]} in keep is not 1 to {_MAX_PORT}" if wrong else None

    def effects(self, lab: LabView) -> tuple[Effect, ...]:  # noqa: ARG002 - the interface
        ports = ", ".join(str(port) for port in sorted(set(self.keep)))
        others = f"tcp dport != {{ {ports} }} " if ports else ""
        return (PacketFilter(self.node, (f"{others}tcp flags & (syn | ack) == syn",)),)


@dataclass(frozen=True, kw_only=True)
class OneWayDrop(Fault):
    """Everything from `source` to `target` is lost; the other direction works."""

    kind: ClassVar[str] = "one_way_drop"
    source: int  # the node whose packets are lost
    target: int  # the node that never gets them

    def problem(self) -> str | None:
        return "source and target are the same node" if self.source == self.target else None

    def effects(self, lab: LabView) -> tuple[Effect, ...]:
        return (PacketFilter(self.target, lab.sources(self.source)),)


@dataclass(frozen=True, kw_only=True)
class MtuBlackHole(Fault):
    """IP packets longer than `limit_bytes` to or from `node` vanish, without an ICMP message."""

    kind: ClassVar[str] = "mtu_black_hole"
    node: int  # the node behind the black hole
    limit_bytes: int = 1400  # longest IP packet that passes, header included
    peer: int | None = None  # only between node and this one

    def problem(self) -> str | None:
        if self.peer == self.node:
            return "node and peer are the same"
        return None if 68 <= self.limit_bytes <= 65535 else "limit_bytes is 68 to 65535"

    def nodes_named(self) -> tuple[int, ...]:
        return (self.node,) if self.peer is None else (self.node, self.peer)

    def effects(self, lab: LabView) -> tuple[Effect, ...]:
        long = f"meta length > {self.limit_bytes}"
        peers = [n for n in range(lab.num_nodes) if n != self.node] if self.peer is None else [self.peer]
        inward = (long,) if self.peer is None else tuple(f"{source} {long}" for source in lab.sources(self.peer))
        outward = tuple(f"{source} {long}" for source in lab.sources(self.node))
        return (PacketFilter(self.node, inward), *(PacketFilter(peer, outward) for peer in peers))


@dataclass(frozen=True, kw_only=True)
class RandomLoss(Fault):
    """Each packet to `node` (and from it, with direction=both) is lost with a probability."""

    kind: ClassVar[str] = "random_loss"
    node: int  # the node with the bad cable
    percent: float  # probability in percent, down to 0.001
    direction: Literal["in", "out", "both"] = "both"  # in, out or both, seen from the node

    def problem(self) -> str | None:
        return None if 0.001 <= self.percent <= 100 else "percent is 0.001 to 100"

    def effects(self, lab: LabView) -> tuple[Effect, ...]:
        chance = f"numgen random mod 100000 < {round(self.percent * 1000)}"
        found: list[Effect] = []
        if self.direction != "out":
            found.append(PacketFilter(self.node, (chance,)))
        if self.direction != "in":
            rules = tuple(f"{source} {chance}" for source in lab.sources(self.node))
            found += [PacketFilter(peer, rules) for peer in range(lab.num_nodes) if peer != self.node]
        return tuple(found)


@dataclass(frozen=True, kw_only=True)
class IdleForgotten(Fault):
    """A firewall in front of `node` forgets TCP connections that were idle for `idle_s`; what comes later is dropped.

    It knows only connections that began after it was put there.
    """

    kind: ClassVar[str] = "idle_forgotten"
    node: int  # the node behind the firewall
    idle_s: int = 60  # after which a connection is forgotten

    def problem(self) -> str | None:
        return None if 1 <= self.idle_s <= 86_400 else "idle_s is 1 to 86400"

    def effects(self, lab: LabView) -> tuple[Effect, ...]:
        peers = [n for n in range(lab.num_nodes) if n != self.node]
        source = lab.sources(self.node)[0]
        return (self._one(self.node, ""), *(self._one(peer, source) for peer in peers))

    def _one(self, node: int, source: str) -> PacketFilter:
        """Seen from one side: what comes in there, from `source` or from anywhere."""
        known = "ip saddr . tcp sport . tcp dport"
        kind = "ipv4_addr . inet_service . inet_service"
        seen = f"update @known {{ {known} }}"
        return PacketFilter(
            node,
            (f"{source} ip protocol tcp".strip(),),
            before=(
                f"{source} tcp flags & (syn | rst) != 0x0 {seen} accept".strip(),
                f"{source} {known} @known {seen} accept".strip(),
            ),
            sets=(f"known {{ type {kind}; flags dynamic,timeout; timeout {self.idle_s}s; size 65535; }}",),
        )
