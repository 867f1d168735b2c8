"""The facts of all nodes as rows: what is the same everywhere, what differs, and who is the odd one.

A row that is the node's own by nature (its host name, its addresses) marks nobody as odd.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from allready.judging.majority import Split
from allready.model import NODE_FACTS, FactMissing, NotApplicable, fact_from_json
from allready.model import facts as f
from allready.report import units
from allready.report.safe import plain
from allready.report.words import t

MAX_CHARS = 240


class Label(Struct, frozen=True):
    """A row's name in every language: our own text `key` filled with `values`, or a name that is never translated."""

    key: str = ""
    name: str = ""

    def text(self, language: str) -> str:
        """The name to show."""
        return t(self.key, language, name=plain(self.name)) if self.key else plain(self.name)


class Value(Struct, frozen=True):
    """A cell: a neutral `text`, or our own text `key` (with `why` for "not known")."""

    text: str = ""
    key: str = ""
    why: str = ""

    def said(self, language: str) -> str:
        """What to show, harmless and not too long."""
        shown = t(self.key, language, why=plain(self.why)) if self.key else plain(self.text, most=MAX_CHARS)
        return shown or units.UNKNOWN

    @property
    def missing(self) -> bool:
        """The fact is not known on this node."""
        return self.key == "fact_unknown"

    @property
    def faint(self) -> bool:
        """It says that there is nothing."""
        return self.key in {"fact_unknown", "fact_not_set", "fact_none"}


class Row(Struct, frozen=True):
    """One fact over all nodes."""

    group: str  # fact name as in NODE_FACTS
    label: Label
    values: dict[int, Value]
    own: bool  # differs between nodes by nature
    odd: frozenset[int]  # nodes that differ from the strict majority
    same: bool  # one value on all nodes


Fact = tuple[Label, Value, bool]
"""What a reader of one fact yields: the row's label, this node's value, and whether it is its own by nature."""

NOT_SET = Value(key="fact_not_set")
NONE = Value(key="fact_none")


def rows(facts: Mapping[int, Mapping[str, Any]]) -> list[Row]:
    """All rows, in the order of NODE_FACTS; a fact of the wrong shape becomes one "not known" cell."""
    table: dict[tuple[str, Label], tuple[dict[int, Value], bool]] = {}
    whys: dict[tuple[str, int], Value] = {}
    for node_rank, known in facts.items():
        for group in _READERS:
            if group not in known:
                continue
            fact = typed(group, known[group])
            if isinstance(fact, FactMissing):
                whys[group, node_rank] = _why(fact)
                continue
            for label, value, own in _READERS[group](fact):
                cells, _ = table.setdefault((group, label), ({}, own))
                cells[node_rank] = value
    ordered = sorted(table.items(), key=lambda item: list(_READERS).index(item[0][0]))
    result = [
        _row(
            group,
            label,
            {n: cells.get(n) or whys.get((group, n)) or _absent(group) for n in facts},
            own=own,
        )
        for (group, label), (cells, own) in ordered
    ]
    lost = {group for (group, _), why in whys.items() if why.missing} - {group for group, _ in table}
    for group in (g for g in _READERS if g in lost):
        cells = {n: whys.get((group, n), Value(key="fact_none")) for n in facts}
        result.append(_row(group, Label(key=f"group_{group}"), cells, own=False))
    return result


def _row(group: str, label: Label, values: dict[int, Value], *, own: bool) -> Row:
    present = {n: v.key or v.text for n, v in values.items() if not v.missing}
    split = Split.by(present)
    same = len(split) <= 1 and len({v.why for v in values.values()}) <= 1 and len(present) in {0, len(values)}
    return Row(group, label, values, own, frozenset() if own else frozenset(split.outliers()), same)


def typed(group: str, value: Any) -> Any:
    """The fact as its class (reports hold plain dicts), or FactMissing."""
    if isinstance(value, (FactMissing, NODE_FACTS[group])):
        return value
    try:
        return fact_from_json(group, value)
    except msgspec.ValidationError as error:
        return FactMissing(str(error))


def _why(missing: FactMissing) -> Value:
    """Why a fact is missing; nothing where this node cannot have it (node 0 has no contact with itself)."""
    return Value() if isinstance(missing, NotApplicable) else Value(key="fact_unknown", why=missing.why)


def _absent(group: str) -> Value:
    return NOT_SET if group == "env" else NONE


def _text(value: object) -> Value:
    return NONE if value is None or value == "" else Value(text=str(value))


def _joined(values: tuple[str, ...]) -> Value:
    return Value(text=", ".join(values)) if values else NONE


def _named(key: str, name: str = "") -> Label:
    return Label(key=f"fact_{key}", name=name)


def _host(fact: f.HostFacts) -> Iterator[Fact]:
    yield _named("hostname"), _text(fact.hostname), True
    yield _named("kernel"), _text(fact.kernel), False
    yield _named("os"), _text(fact.os_name), False
    yield _named("container"), _text(fact.container), False
    yield _named("cpus"), _text(fact.num_cpus), False
    yield _named("memory"), Value(text=units.size(fact.memory_bytes)), False


def _launch(fact: f.LaunchFacts) -> Iterator[Fact]:
    yield _named("num_nodes"), _text(fact.num_nodes), False
    yield _named("nproc"), _text(fact.nproc_per_node), False
    yield _named("master"), Value(text=f"{fact.master_addr}:{fact.master_port}"), False
    yield _named("job_id"), _text(fact.job_id), False
    yield _named("scheduler"), _text(fact.scheduler), False
    yield _named("backend"), _text(fact.backend), False


def _names(fact: f.NameFacts) -> Iterator[Fact]:
    own = _joined(fact.own_addresses) if fact.own_addresses else Value(key="fact_unresolved")
    yield _named("own_addresses"), own, True
    master = _joined(fact.master_addresses) if fact.master_addresses else Value(key="fact_unresolved")
    yield _named("master_addresses", fact.master_name), master, False


def _net(fact: f.NetFacts) -> Iterator[Fact]:
    for i in fact.interfaces:
        parts = ["up" if i.is_up else "down", f"MTU {i.mtu_bytes}"]
        if i.speed_mbit_per_s:
            parts.append(units.link_speed(i.speed_mbit_per_s))
        parts += [i.kind] if i.kind != "loopback" else []
        parts += [i.driver] if i.driver else []
        yield Label(name=i.name), Value(text=" · ".join(parts)), False
        if not i.is_loopback:
            yield _named("interface_address", i.name), _joined(i.addresses), True
    default = next((r for r in fact.routes if r.destination == "0.0.0.0/0"), None)
    route = NONE if default is None else Value(text=f"{default.gateway or ''} dev {default.interface}".strip())
    yield _named("default_route"), route, False
    if fact.local_port_range is not None:
        yield _named("port_range"), Value(text="{}-{}".format(*fact.local_port_range)), False


def _transport(fact: f.TransportFacts) -> Iterator[Fact]:
    for label, choice in (("nccl_sockets", fact.nccl), ("gloo_sockets", fact.gloo)):
        text = ", ".join(choice.interfaces)
        why = choice.error or choice.reason
        yield _named(label), Value(text=f"{text or units.UNKNOWN} ({why})" if why else text), False


def _rdma(fact: f.RdmaFacts) -> Iterator[Fact]:
    if not fact.ports:
        yield Label(key="group_rdma"), Value(key="fact_rdma_none"), False
    for port in fact.ports:
        rate = f" · {units.digits(port.rate_gbit_per_s)} Gbit/s" if port.rate_gbit_per_s else ""
        text = f"{port.state} · {port.physical_state} · {port.link_layer}{rate}"
        yield Label(name=f"{port.device}/{port.port}"), Value(text=text), False


def _gpu(fact: f.GpuFacts) -> Iterator[Fact]:
    models: dict[str, int] = {}
    for gpu in fact.gpus:
        model = f"{gpu.name} {units.size(gpu.memory_total_bytes)}"
        models[model] = models.get(model, 0) + 1
    text = ", ".join(f"{n} × {model}" for model, n in models.items())
    yield _named("gpus"), Value(text=text) if text else Value(key="fact_no_gpus"), False
    yield _named("driver"), _text(fact.driver_version), False
    yield _named("cuda"), _text(fact.cuda_version), False
    visible = Value(text=",".join(map(str, fact.visible))) if fact.visible else NONE
    yield _named("visible"), visible, False
    if fact.gpus:
        used = ", ".join(units.size(g.memory_used_bytes) for g in fact.gpus)
        yield _named("gpu_used"), Value(text=used), True


def _software(fact: f.SoftwareFacts) -> Iterator[Fact]:
    for name, version in fact.versions.items():
        yield Label(name=name), _text(version), False


def _limits(fact: f.LimitFacts) -> Iterator[Fact]:
    unlimited = Value(key="fact_unlimited")
    yield _named("memlock"), unlimited if fact.memlock_bytes is None else _size(fact.memlock_bytes), False
    soft, hard = ("∞" if n is None else str(n) for n in (fact.nofile_soft, fact.nofile_hard))
    yield _named("nofile"), Value(text=f"{soft} / {hard}"), False
    missing = Value(key="fact_missing_dir")
    yield _named("shm"), missing if fact.shm_total_bytes is None else _size(fact.shm_total_bytes), False
    yield _named("shm_free"), missing if fact.shm_free_bytes is None else _size(fact.shm_free_bytes), True


def _size(num_bytes: int) -> Value:
    return Value(text=units.size(num_bytes))


def _env(fact: f.EnvFacts) -> Iterator[Fact]:
    for name, value in sorted(fact.variables.items()):
        yield Label(name=name), Value(text=value or '""'), False


def _clock(fact: f.ClockFacts) -> Iterator[Fact]:
    text = f"{units.time(fact.offset_s)} ± {units.time(fact.uncertainty_s)}"
    yield _named("clock"), Value(text=text), True


def _script(fact: f.ScriptFacts) -> Iterator[Fact]:
    yield _named("script"), Value(text=f"{fact.path} ({units.size(fact.size_bytes)})"), False
    yield _named("sha256"), Value(text=fact.sha256[:16]), False


def _firewall(fact: f.FirewallFacts) -> Iterator[Fact]:
    yield _named("firewall"), _text(fact.tool) if fact.tool else Value(key="fact_firewall_none"), False
    if fact.tool:
        yield _named("firewall_drops"), _text(len(fact.drops)), False


def _master_port(fact: f.MasterPortFacts) -> Iterator[Fact]:
    why = " ".join(part for part in (fact.error, fact.service, fact.banner) if part)
    value = Value(key="fact_port_opened") if fact.opened else Value(key="fact_port_failed", why=why)
    yield Label(key="group_master_port"), value, True


def _master_contact(fact: f.MasterContactFacts) -> Iterator[Fact]:
    text = f"{fact.outcome} ({fact.detail})" if fact.detail else fact.outcome
    yield Label(key="group_master_contact"), Value(text=text), True


_READERS: dict[str, Callable[[Any], Iterator[Fact]]] = {
    "host": _host,
    "software": _software,
    "gpu": _gpu,
    "env": _env,
    "net": _net,
    "transport": _transport,
    "rdma": _rdma,
    "names": _names,
    "launch": _launch,
    "limits": _limits,
    "clock": _clock,
    "script": _script,
    "firewall": _firewall,
    "master_port": _master_port,
    "master_contact": _master_contact,
}
