"""All facts of one node, within a deadline."""

import logging
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from allready.errors import DeadlineExceeded, FactUnavailable
from allready.facts.env import collect_env
from allready.facts.exchange import from_json, to_json
from allready.facts.firewall import collect_firewall
from allready.facts.gpu import collect_gpu
from allready.facts.host import Host
from allready.facts.limits import collect_limits
from allready.facts.names import collect_names
from allready.facts.net import collect_net
from allready.facts.rdma import collect_rdma
from allready.facts.script import collect_script
from allready.facts.software import collect_software
from allready.facts.system import collect_host
from allready.facts.tasks import Task
from allready.facts.transport import collect_transport
from allready.model import FactMissing, LaunchFacts, NodeFacts, NotApplicable

__all__ = ["collect", "from_json", "to_json"]

T = TypeVar("T")
RESOLVER_S = 3.0  # longer than a healthy DNS needs; the resolver's own limit is 5 s per server and try
FIREWALL_S = 2.0
SCRIPT_S = 3.0
_log = logging.getLogger(__name__)


def collect(host: Host, launch: LaunchFacts, *, script: str | None, deadline_s: float) -> NodeFacts:
    """Read everything about this node; returns within about `deadline_s`, whatever hangs.

    Never raises: what cannot be read, or not in time, becomes FactMissing with the reason.  `clock`, `master_port`
    and `master_contact` are left as they are in an empty `NodeFacts`.

    Args:
        host: this machine, or a saved one.
        launch: goes in unchanged; its master_addr is resolved.
        script: path of the training script, None when none was named.
        deadline_s: 1 or more.
    """
    until = time.monotonic() + deadline_s
    inner_s = max(0.1, deadline_s * 0.9)  # what can end by itself does so before it is given up here

    # Whatever may block (resolver, GPU driver, network file systems) runs beside the rest.
    software = _Area("software", lambda: collect_software(host, timeout_s=inner_s))
    names = _Area("names", lambda: collect_names(host, launch.master_addr, timeout_s=min(RESOLVER_S, inner_s)))
    gpu = _Area("gpu", lambda: collect_gpu(host, timeout_s=inner_s))
    firewall = _Area("firewall", lambda: collect_firewall(host, timeout_s=min(FIREWALL_S, inner_s)))
    scripted = script and _Area("script", lambda: collect_script(host, script, timeout_s=min(SCRIPT_S, inner_s)))
    rdma = _Area("rdma", lambda: collect_rdma(host))
    net = _Area("net", lambda: collect_net(host, timeout_s=min(2.0, inner_s)))

    about_host = _Area("host", lambda: collect_host(host))
    limits = _Area("limits", lambda: collect_limits(host, timeout_s=min(2.0, inner_s)))
    env = _Area("env", lambda: collect_env(host))
    net_facts, name_facts, software_facts = net.get(until), names.get(until), software.get(until)
    nccl = None if isinstance(software_facts, FactMissing) else software_facts.versions.get("nccl")
    transport = _Area("transport", lambda: collect_transport(host, net=net_facts, names=name_facts, nccl_version=nccl))
    return NodeFacts(
        launch=launch,
        host=about_host.get(until),
        names=name_facts,
        net=net_facts,
        transport=transport.get(until + 0.2),
        rdma=rdma.get(until),
        gpu=gpu.get(until),
        software=software_facts,
        limits=limits.get(until),
        env=env.get(until),
        script=scripted.get(until) if scripted else NotApplicable("no script was named"),
        firewall=firewall.get(until),
    )


class _Area(Generic[T]):
    """One collector at work in a thread of its own."""

    def __init__(self, name: str, call: Callable[[], T]) -> None:
        self._name = name
        self._task = Task(call, f"facts-{name}")

    def get(self, until: float) -> T | FactMissing:
        """The fact, or why there is none; waits until `until` on the monotonic clock at most."""
        try:
            return self._task.result(timeout_s=until - time.monotonic())
        except FactUnavailable as error:
            return FactMissing(str(error))
        except DeadlineExceeded:
            return FactMissing(f"{self._name}: not read in time")
        except Exception as error:  # noqa: BLE001 - a mistake of ours must not stop the check
            _log.warning("reading the facts %s failed", self._name, exc_info=True)
            return FactMissing(f"{type(error).__name__}: {error}")
