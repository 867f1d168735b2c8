"""Faults of one machine's configuration: names, shared memory."""

import ipaddress
from dataclasses import dataclass
from typing import ClassVar

from allready.lab.faults.base import Effect, Fault, Tmpfs
from allready.lab.hosts import HostsEdit
from allready.lab.network import LabView
from allready.patterns import compiled

_HOST = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?"


def _host_problem(name: str) -> str | None:
    return None if compiled(_HOST).fullmatch(name) else f"{name!r} is no host name"


@dataclass(frozen=True, kw_only=True)
class HostsLoopback(Fault):
    """/etc/hosts of `node` gives a name the address 127.0.1.1, as Debian's installer does for the own name."""

    kind: ClassVar[str] = "hosts_loopback"
    node: int  # the node with the bad file
    name: str | None = None  # the name (default: the node's own)

    def problem(self) -> str | None:
        return None if self.name is None else _host_problem(self.name)

    def slots_taken(self) -> tuple[tuple[str, ...], ...]:
        return (("hosts", str(self.node), self.name or f"node{self.node}"),)

    def effects(self, lab: LabView) -> tuple[Effect, ...]:
        return (HostsEdit(self.node, self.name or lab.name(self.node), "127.0.1.1"),)


@dataclass(frozen=True, kw_only=True)
class _HostsLine(Fault):
    """A fault of one name in /etc/hosts of `node`."""

    node: int  # the node whose file is changed
    name: str  # the host name

    def problem(self) -> str | None:
        return _host_problem(self.name)

    def slots_taken(self) -> tuple[tuple[str, ...], ...]:
        return (("hosts", str(self.node), self.name),)


@dataclass(frozen=True, kw_only=True)
class HostsEntry(_HostsLine):
    """/etc/hosts of `node` gives a name an address of your choice."""

    kind: ClassVar[str] = "hosts_entry"
    address: str  # the address it gets

    def problem(self) -> str | None:
        try:
            ipaddress.ip_address(self.address)
        except ValueError:
            return f"{self.address!r} is no IP address"
        return super().problem()

    def effects(self, lab: LabView) -> tuple[Effect, ...]:  # noqa: ARG002 - the interface
        return (HostsEdit(self.node, self.name, self.address),)


@dataclass(frozen=True, kw_only=True)
class HostsMissing(_HostsLine):
    """/etc/hosts of `node` lacks a name, which then does not resolve there."""

    kind: ClassVar[str] = "hosts_missing"

    def effects(self, lab: LabView) -> tuple[Effect, ...]:  # noqa: ARG002 - the interface
        return (HostsEdit(self.node, self.name, None),)


@dataclass(frozen=True, kw_only=True)
class TinyShm(Fault):
    """The /dev/shm of `node` is as small as a container's default."""

    kind: ClassVar[str] = "tiny_shm"
    slot: ClassVar[str] = "shm"
    node: int  # the node
    size_bytes: int = 64 * 1024**2  # its size; 64M, 1G and the like are understood

    def problem(self) -> str | None:
        return None if 4096 <= self.size_bytes < 2**50 else "size_bytes is at least 4096"

    def effects(self, lab: LabView) -> tuple[Effect, ...]:  # noqa: ARG002 - the interface
        return (Tmpfs(self.node, "/dev/shm", self.size_bytes),)  # noqa: S108 - the mount point itself
