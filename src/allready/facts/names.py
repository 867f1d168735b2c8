"""What the own host name and the master's name mean on this node."""

from allready.errors import FactUnavailable
from allready.facts.host import Host
from allready.facts.tasks import Task
from allready.model import NameFacts

MAX_ADDRESSES = 32


def collect_names(host: Host, master_name: str, *, timeout_s: float) -> NameFacts:
    """Resolve both names, at the same time, within `timeout_s`; what does not resolve says why."""
    own_name = host.read("/proc/sys/kernel/hostname").strip()
    master = Task(lambda: _resolve(host, master_name, timeout_s), "master-name")
    own_addresses, own_error = _resolve(host, own_name, timeout_s)
    master_addresses, master_error = master.result(timeout_s=timeout_s + 1.0)
    return NameFacts(
        own_name=own_name,
        own_addresses=own_addresses,
        master_name=master_name,
        master_addresses=master_addresses,
        own_error=own_error,
        master_error=master_error,
    )


def _resolve(host: Host, name: str, timeout_s: float) -> tuple[tuple[str, ...], str | None]:
    try:
        return host.resolve(name, timeout_s=timeout_s)[:MAX_ADDRESSES], None
    except FactUnavailable as error:
        return (), str(error)
