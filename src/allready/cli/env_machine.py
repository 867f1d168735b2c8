"""What `allready env` reads of this machine: bounded in time, and never a reason to fail."""

import functools
import importlib
import ipaddress
import time
from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from allready.errors import DeadlineExceeded, FactUnavailable
from allready.facts.host import Host, missing
from allready.facts.tasks import Task
from allready.messaging.sockets import source_address
from allready.model import FactMissing, HostFacts, LimitFacts, NetFacts, NodeFacts, SoftwareFacts
from allready.variables.here import Here

DEADLINE_S = 3.0
_VENDORS = {
    "Amazon EC2": "aws", "Google": "gcp", "Microsoft Corporation": "azure", "OracleCloud.com": "oci",
    "Alibaba Cloud": "alibaba", "Tencent Cloud": "tencent", "CoreWeave": "coreweave",
}  # fmt: skip
_COLLECTORS = {
    "net": ("net", "collect_net"),
    "rdma": ("rdma", "collect_rdma"),
    "gpu": ("gpu", "collect_gpu"),
    "software": ("software", "collect_software"),
    "limits": ("limits", "collect_limits"),
    "host": ("system", "collect_host"),
}
_QUICK = {"rdma", "host"}
"""Read files only, and have no deadline of their own."""


class ThisMachine(Struct, frozen=True, kw_only=True):
    """Facts of this machine, or why they are missing."""

    facts: NodeFacts
    cloud: str | None = None

    def fact(self, name: str) -> Any:
        """A fact, or None."""
        value = getattr(self.facts, name)
        return None if isinstance(value, FactMissing) else value

    def missing(self, names: Iterable[str]) -> dict[str, str]:
        """Why facts are not there, by name."""
        values = ((name, getattr(self.facts, name)) for name in names)
        return {name: value.why for name, value in values if isinstance(value, FactMissing)}

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the software found, or given."""
        software = self.fact("software")
        return dict(software.versions) if isinstance(software, SoftwareFacts) else {}

    def having(self, **versions: str | None) -> "ThisMachine":
        """The machine as if it had these versions (those that are not None)."""
        given = {name: version for name, version in versions.items() if version}
        if "jax" in given:
            given.setdefault("jaxlib", given["jax"])  # they are released together
        if not given:
            return self
        software = SoftwareFacts(versions={**self.versions, **given})
        return replace(self, facts=replace(self.facts, software=software))

    def here(self) -> Here:
        """The same for explaining values and computing presets."""
        limits, host = self.fact("limits"), self.fact("host")
        return Here(
            net=self.fact("net"),
            rdma=self.fact("rdma"),
            gpu=self.fact("gpu"),
            versions=self.versions,
            num_cpus=host.num_cpus if isinstance(host, HostFacts) else None,
            shm_bytes=limits.shm_total_bytes if isinstance(limits, LimitFacts) else None,
            in_container=isinstance(host, HostFacts) and host.container is not None,
        )


def read_machine(host: Host, *, deadline_s: float = DEADLINE_S, only: Iterable[str] | None = None) -> ThisMachine:
    """Read facts beside each other; what is not there in time is missing.

    only: names of the facts that are needed; None for all.
    """
    until = time.monotonic() + deadline_s
    inner_s = max(0.1, deadline_s * 0.9)
    wanted = _COLLECTORS if only is None else only
    tasks = {name: Task(functools.partial(_collect, name, host, inner_s), f"env-{name}") for name in wanted}
    facts: dict[str, Any] = {name: _result(task, until) for name, task in tasks.items()}
    return ThisMachine(facts=NodeFacts(**facts), cloud=cloud_of(host))


def towards(net: NetFacts, addresses: Iterable[str]) -> str | None:
    """The interface by which the kernel sends to the first of these addresses that it has a way to; None for none."""
    for address in addresses:
        own = source_address(address)
        for interface in net.interfaces:
            if not interface.is_loopback and own in interface.bare_addresses:
                return interface.name
    return None


def addresses_of(host: Host, peers: Iterable[str], *, timeout_s: float) -> dict[str, tuple[str, ...]]:
    """Peer -> its addresses, () for a name that does not resolve."""
    found: dict[str, tuple[str, ...]] = {}
    for peer in peers:
        try:
            found[peer] = (str(ipaddress.ip_address(peer)),)
        except ValueError:
            try:
                found[peer] = host.resolve(peer, timeout_s=timeout_s)
            except FactUnavailable:
                found[peer] = ()
    return found


def _collect(name: str, host: Host, timeout_s: float) -> object:
    """A fact by its name; only the collector that is asked is loaded.

    Raises:
        FactUnavailable: it cannot be read.
    """
    module, function = _COLLECTORS[name]
    collect = getattr(importlib.import_module(f"allready.facts.{module}"), function)
    return collect(host) if name in _QUICK else collect(host, timeout_s=timeout_s)


def _result(task: Task[object], until: float) -> object:
    try:
        return task.result(timeout_s=until - time.monotonic())
    except FactUnavailable as error:
        return missing(error)
    except DeadlineExceeded:
        return FactMissing("not read in time")


def cloud_of(host: Host) -> str | None:
    """Which provider's machine this is, by its firmware."""
    for path in ("/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/board_vendor"):
        try:
            vendor = host.read(path).strip()
        except FactUnavailable:
            continue
        if vendor in _VENDORS:
            return _VENDORS[vendor]
    return None
