"""All facts of one node, within a deadline."""

import logging
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from allready.errors import DeadlineExceeded, FactUnavailable
from allready.facts.bus import BUS_S, collect_bus
from allready.facts.env import collect_env, nccl_conf
from allready.facts.firewall import collect_firewall
from allready.facts.gpu import collect_gpu
from allready.facts.host import Host, missing, number, text_of
from allready.facts.imports import collect_imports
from allready.facts.limits import collect_limits
from allready.facts.net import collect_net
from allready.facts.order import Also
from allready.facts.rdma import collect_rdma
from allready.facts.software import collect_script, collect_software
from allready.facts.system import collect_host, collect_time
from allready.facts.tasks import Task
from allready.facts.transport import collect_transport
from allready.facts.usage import collect_usage
from allready.model import FactMissing, HostsLine, LaunchFacts, NameFacts, NodeFacts, NotApplicable, Phrase
from allready.model.fill import phrase_of, texts

RESOLVER_S = 3.0  # longer than a healthy DNS needs; the resolver's own limit is 5 s per server and try
FIREWALL_S = 2.0
SCRIPT_S = 3.0
WATCH_S = 0.5
TRANSPORT_S = 0.2  # for what follows from the other facts, after the deadline
IMPORTS_END_S = 0.2  # for ending children that import, at the very end
MAX_ADDRESSES = 32
MAX_WORDS = 16
_log = logging.getLogger(__name__)


def collect(
    host: Host, launch: LaunchFacts, *, script: str | None, deadline_s: float, also: Also | None = None
) -> NodeFacts:
    """Read everything about this node; returns within about `deadline_s`, whatever hangs.

    Never raises: what cannot be read, or not in time, becomes FactMissing with the reason.  `clock`, `master_port`
    and `master_contact` are left as they are in an empty `NodeFacts`.

    Args:
        launch: goes in unchanged, and its master_addr is resolved.
        script: the training script, if one was named.
        deadline_s: 1 or more.
        also: what only `doctor` asks.
    """
    until = time.monotonic() + deadline_s
    inner_s = max(0.1, deadline_s * 0.9)  # what can end by itself does so before it is given up here

    calls: dict[str, Callable[[], object]] = {
        "software": lambda: collect_software(host, timeout_s=inner_s),
        "names": lambda: collect_names(host, launch.master_addr, timeout_s=min(RESOLVER_S, inner_s)),
        "gpu": lambda: collect_gpu(host, timeout_s=inner_s),
        "firewall": lambda: collect_firewall(
            host, timeout_s=min(FIREWALL_S, inner_s), peers=() if also is None else also.peers
        ),
        "rdma": lambda: collect_rdma(host, watch_s=0.0 if also is None else WATCH_S),
        "net": lambda: collect_net(host, timeout_s=min(2.0, inner_s)),
        "host": lambda: collect_host(host),
        "limits": lambda: collect_limits(host, timeout_s=min(2.0, inner_s)),
        "env": lambda: collect_env(host),
    }
    if script:
        calls["script"] = lambda: collect_script(host, script, timeout_s=min(SCRIPT_S, inner_s))
    if also is not None:
        calls["usage"] = lambda: collect_usage(
            host, ports=also.ports, peers=also.peers, resolver_s=min(RESOLVER_S, inner_s)
        )
        calls["time"] = lambda: collect_time(host)
        calls["bus"] = lambda: collect_bus(host, timeout_s=min(BUS_S, inner_s))
    imports_s = max(0.1, deadline_s + TRANSPORT_S - IMPORTS_END_S)
    if also is not None and also.imports:
        calls["imports"] = lambda: collect_imports(host, timeout_s=imports_s, use_gpus=also.use_gpus)
    # Beside each other, for some may block: the resolver, the GPU driver, network file systems.
    tasks = {name: Task(call, f"facts-{name}") for name, call in calls.items()}
    conf = Task(lambda: nccl_conf(host), "nccl-conf")
    imports = tasks.pop("imports", None)
    found: dict[str, Any] = {name: _result(name, task, until) for name, task in tasks.items()}
    software = found["software"]
    nccl = None if isinstance(software, FactMissing) else software.versions.get("nccl")
    transport = Task(
        lambda: collect_transport(
            host,
            net=found["net"],
            names=found["names"],
            nccl_version=nccl,
            rdma=found["rdma"],
            conf=conf.result(timeout_s=TRANSPORT_S),
        ),
        "facts-transport",
    )
    found.setdefault("script", NotApplicable("no script was named"))
    found["transport"] = _result("transport", transport, until + TRANSPORT_S)
    if imports is not None:
        found["imports"] = _result("imports", imports, until + TRANSPORT_S)  # the slowest of all
    return NodeFacts(launch=launch, **found)


def _result(name: str, task: Task[Any], until: float) -> Any:
    """The fact, or why there is none; waits until `until` on the monotonic clock at most."""
    try:
        return task.result(timeout_s=until - time.monotonic())
    except FactUnavailable as error:
        return missing(error)
    except DeadlineExceeded:
        return missing(FactUnavailable("{name}: not read in time", name=name))
    except Exception as error:  # noqa: BLE001 - a mistake of ours must not stop the check
        _log.warning("reading the facts %s failed", name, exc_info=True)
        return missing(FactUnavailable("{error}", error=f"{type(error).__name__}: {error}"))


def collect_names(host: Host, master_name: str, *, timeout_s: float) -> NameFacts:
    """Resolve both names, at the same time, within `timeout_s`; what does not resolve says why."""
    own_name = host.read("/proc/sys/kernel/hostname").strip()
    master = Task(lambda: _resolved(host, master_name, timeout_s), "master-name")
    own_addresses, own_error = _resolved(host, own_name, timeout_s)
    master_addresses, master_error = master.result(timeout_s=timeout_s + 1.0)
    errors = {"own_error": own_error, "master_error": master_error}
    return NameFacts(
        own_name=own_name,
        own_addresses=own_addresses,
        master_name=master_name,
        master_addresses=master_addresses,
        own_lines=tuple(hosts_lines(host, own_name))[:MAX_ADDRESSES],
        master_lines=tuple(hosts_lines(host, master_name))[:MAX_ADDRESSES],
        order=_order(host),
        **_resolver(host),
        **texts(**{name: error for name, error in errors.items() if error is not None}),
    )


def _order(host: Host) -> tuple[str, ...]:
    """The words of the line `hosts:`, without what is to be done after each."""
    for line in text_of(host, "/etc/nsswitch.conf").splitlines():
        name, _, words = line.partition("#")[0].partition(":")
        if name.strip() == "hosts":
            return tuple(re.sub(r"\[[^\]]{0,200}\]", " ", words).split())[:MAX_WORDS]
    return ()


def _resolver(host: Host) -> dict[str, Any]:
    """Servers and domains of resolv.conf; of several lists of domains the last one counts, as for the resolver."""
    found: dict[str, Any] = {"servers": (), "search": (), "num_dots": None}
    for line in text_of(host, "/etc/resolv.conf").splitlines():
        match line.partition("#")[0].split()[:MAX_WORDS]:
            case ["nameserver", address, *_]:
                found["servers"] = (*found["servers"], address[:64])[:MAX_WORDS]
            case ["search" | "domain", *domains]:
                found["search"] = tuple(domain[:253] for domain in domains)
            case ["options", *options]:
                dots = [number(option.removeprefix("ndots:")) for option in options if option.startswith("ndots:")]
                found["num_dots"] = dots[-1] if dots else found["num_dots"]
    return found


def hosts_lines(host: Host, name: str) -> Iterator[HostsLine]:
    """Lines of /etc/hosts that give `name` an address."""
    for place, line in enumerate(text_of(host, "/etc/hosts").splitlines(), start=1):
        address, *names = line.partition("#")[0].split() or [""]
        if name.lower() in map(str.lower, names):
            yield HostsLine(line=place, address=address[:64])


def _resolved(host: Host, name: str, timeout_s: float) -> tuple[tuple[str, ...], Phrase | None]:
    try:
        return host.resolve(name, timeout_s=timeout_s)[:MAX_ADDRESSES], None
    except FactUnavailable as error:
        return (), phrase_of(error)
