"""The facts of all nodes as rows: what is the same everywhere, what differs, and who is the odd one.

A row that is the node's own by nature (its host name, its addresses) marks no node as odd.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from allready import units
from allready.judging.majority import Split
from allready.model import NODE_FACTS, FactMissing, NotApplicable, Report, fact_from_json
from allready.model import facts as f
from allready.model.fill import in_english, said
from allready.report.matrix import MAX_NODES
from allready.report.safe import plain
from allready.report.words import t
from allready.text.catalog import label_of, say_phrase
from allready.text.choices import say_choice
from allready.text.reasons import say_missing

MAX_CHARS = 240
TRANSPOSE_ABOVE = 8


class Shown(Struct, frozen=True):
    """A row's name or a cell: a neutral `text`, or our own text `key` filled with `text` (a name) or `why`.

    `word`: `text` is a word of ours, of this section of words.toml.  `parts`: a cell that is several.  `choice`: of the
    interfaces in `text`, which is why.
    """

    text: str = ""
    key: str = ""
    word: str = ""
    parts: tuple["Shown", ...] = ()
    why: FactMissing = FactMissing("")
    choice: f.InterfaceChoice | None = None

    def text_in(self, language: str) -> str:
        """What to show, harmless and not too long."""
        if self.parts:
            return " · ".join(part.text_in(language) for part in self.parts)
        text = plain(label_of(self.word, self.text, language) if self.word else self.text, most=MAX_CHARS)
        if self.choice is not None:
            return f"{text or units.UNKNOWN} ({plain(say_phrase(say_choice(self.choice), language))})"
        why = plain(say_missing(self.why, language))
        return (t(self.key, language, name=text, why=why) if self.key else text) or units.UNKNOWN

    @property
    def value(self) -> str:
        """What is compared between nodes."""
        choice = self.choice
        failed = in_english(say_choice(choice)) if choice is not None and choice.failure is not None else ""
        of_choice = (choice.step, failed) if choice is not None else ()
        return " ".join((self.key, self.text, *of_choice, *(part.value for part in self.parts)))

    @property
    def missing(self) -> bool:
        """The fact is not known on this node."""
        return self.key == "fact_unknown"

    @property
    def faint(self) -> bool:
        """It says that there is nothing."""
        return self.key in {"fact_unknown", "fact_not_set", "fact_none"}


class FactRow(Struct, frozen=True):
    """One fact over all nodes."""

    group: str  # fact name as in NODE_FACTS
    label: Shown
    values: dict[int, Shown]
    own: bool  # differs between nodes by nature
    odd: frozenset[int]  # nodes that differ from the strict majority
    same: bool  # one value on all nodes


Fact = tuple[Shown, Shown, bool]
"""What a reader of one fact yields: the row's label, this node's value, and whether it is its own by nature."""

NOT_SET = Shown(key="fact_not_set")
NONE = Shown(key="fact_none")


def rows(facts: Mapping[int, Mapping[str, Any]], num_nodes: int = 0) -> list[FactRow]:
    """All rows, in the order of NODE_FACTS; a fact of the wrong shape becomes one "not known" cell.

    Args:
        num_nodes: of the job, also those that sent no facts.
    """
    table: dict[tuple[str, Shown], tuple[dict[int, Shown], bool]] = {}
    whys: dict[tuple[str, int], Shown] = {}
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
        _row(group, label, {n: of.get(n) or whys.get((group, n)) or _absent(group) for n in facts}, num_nodes, own=own)
        for (group, label), (of, own) in ordered
    ]
    lost = {group for (group, _), why in whys.items() if why.missing} - {group for group, _ in table}
    for group in (g for g in _READERS if g in lost):
        cells = {n: whys.get((group, n), Shown(key="fact_none")) for n in facts}
        result.append(_row(group, Shown(key=f"group_{group}"), cells, num_nodes, own=False))
    return result


def nodes(report: Report, codes: Sequence[str]) -> dict[str, Any] | None:
    """What the template shows; None without facts.

    `codes` of the findings are in the page's order, so that a node links to the findings that name it.
    """
    if not report.facts:
        return None
    table = rows(report.facts, report.world.num_nodes)
    several = len(report.facts) > 1
    different = [row for row in table if several and not row.same]
    same = [row for row in table if not several or row.same]
    # What distinguishes a guilty node stands above what every node has of its own.
    different.sort(key=lambda row: (not row.odd, row.own))
    shown = _shown(report, different)
    at = {code: number for number, code in reversed(list(enumerate(codes, start=1)))}
    return {
        "several": several,
        "count": len(report.facts),
        "more": len(report.facts) - len(shown),
        "transposed": len(shown) > TRANSPOSE_ABOVE,
        "odd": any(row.odd for row in different),
        "shown": shown,
        "codes": {n: [(code, at.get(code)) for code in report.odd.get(n, ())[:12]] for n in shown},
        "rows": different,
        "same": same,
    }


def _shown(report: Report, different: Sequence[FactRow]) -> list[int]:
    """All nodes, or of very many those that differ most and those that findings name."""
    ranks = sorted(report.facts)
    if len(ranks) <= MAX_NODES:
        return ranks
    weight = {n: len(report.odd.get(n, ())) + sum(n in row.odd for row in different) for n in ranks}
    return sorted(sorted(ranks, key=lambda n: (-weight[n], n))[:MAX_NODES], key=lambda n: (-weight[n], n))


def _row(group: str, label: Shown, values: dict[int, Shown], num_nodes: int, *, own: bool) -> FactRow:
    present = {n: v.value for n, v in values.items() if not v.missing}
    split = Split.by(present, num_members=num_nodes)
    same = len(split) <= 1 and len({v.why.why for v in values.values()}) <= 1 and len(present) in {0, len(values)}
    return FactRow(group, label, values, own, frozenset() if own else frozenset(split.outliers()), same)


def typed(group: str, value: Any) -> Any:
    """The fact as its class (reports hold plain dicts), or FactMissing."""
    if isinstance(value, (FactMissing, NODE_FACTS[group])):
        return value
    try:
        return fact_from_json(group, value)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # the latter: a lone surrogate for one of few words
        return FactMissing.because(said("{error}", error=error))


def _why(missing: FactMissing) -> Shown:
    """Why a fact is missing; nothing where this node cannot have it (node 0 has no contact with itself)."""
    return Shown() if isinstance(missing, NotApplicable) else Shown(key="fact_unknown", why=missing)


def _absent(group: str) -> Shown:
    return NOT_SET if group == "env" else NONE


def _text(value: object) -> Shown:
    return NONE if value is None or value == "" else Shown(str(value))


def _yes(*, is_it: bool) -> Shown:
    return Shown(key="fact_yes" if is_it else "fact_no")


def _joined(values: tuple[str, ...]) -> Shown:
    return Shown(", ".join(values)) if values else NONE


def _named(key: str, name: str = "") -> Shown:
    return Shown(name, key=f"fact_{key}")


def _host(fact: f.HostFacts) -> Iterator[Fact]:
    yield _named("hostname"), _text(fact.hostname), True
    yield _named("kernel"), _text(fact.kernel), False
    yield _named("os"), _text(fact.os_name), False
    yield _named("container"), _text(fact.container), False
    yield _named("cpus"), _text(fact.num_cpus), False
    yield _named("memory"), Shown(units.size(fact.memory_bytes)), False
    if fact.swap_total_bytes is not None:
        yield _named("swap"), Shown(units.size(fact.swap_total_bytes)) if fact.swap_total_bytes else NONE, False
        if fact.swap_total_bytes and fact.swap_free_bytes is not None:
            used = fact.swap_total_bytes - fact.swap_free_bytes
            yield _named("swap_used"), Shown(units.size(used)), True


def _launch(fact: f.LaunchFacts) -> Iterator[Fact]:
    yield _named("num_nodes"), _text(fact.num_nodes), False
    yield _named("nproc"), _text(fact.nproc_per_node), False
    yield _named("master"), Shown(f"{fact.master_addr}:{fact.master_port}"), False
    yield _named("job_id"), _text(fact.job_id), False
    yield _named("scheduler"), _text(fact.scheduler), False
    yield _named("backend"), _text(fact.backend), False


def _names(fact: f.NameFacts) -> Iterator[Fact]:
    own = _joined(fact.own_addresses) if fact.own_addresses else Shown(key="fact_unresolved")
    yield _named("own_addresses"), own, True
    if fact.own_lines:
        lines = tuple(f"{one.line}: {one.address}" for one in fact.own_lines)
        yield _named("own_lines"), _joined(lines), True
    master = _joined(fact.master_addresses) if fact.master_addresses else Shown(key="fact_unresolved")
    yield _named("master_addresses", fact.master_name), master, False
    if fact.master_lines:
        lines = tuple(f"{one.line}: {one.address}" for one in fact.master_lines)
        yield _named("hosts_lines", fact.master_name), _joined(lines), False
    if fact.order:
        yield _named("name_order"), Shown(" → ".join(fact.order)), False
    if fact.servers:
        yield _named("name_servers"), _joined(fact.servers), False
    if fact.search:
        dots = "" if fact.num_dots is None else f" (ndots {fact.num_dots})"
        yield _named("name_search"), Shown(f"{', '.join(fact.search)}{dots}"), False


def _net(fact: f.NetFacts) -> Iterator[Fact]:
    for i in fact.interfaces:
        parts = [Shown("up" if i.is_up else "down"), Shown(f"MTU {i.mtu_bytes}")]
        if i.speed_mbit_per_s:
            parts.append(Shown(units.link_speed(i.speed_mbit_per_s)))
        parts += [Shown(i.kind, word="interface")] if i.kind not in {"loopback", "other"} else []
        parts += [Shown(i.driver)] if i.driver else []
        yield Shown(i.name), Shown(parts=tuple(parts)), False
        if not i.is_loopback:
            yield _named("interface_address", i.name), _joined(i.addresses), True
    defaults = [r for r in fact.routes if r.destination == "0.0.0.0/0"]
    ways = tuple(
        f"{r.gateway or ''} dev {r.interface}".strip() + (f" metric {r.metric}" if len(defaults) > 1 else "")
        for r in defaults
    )
    yield _named("default_route"), _joined(ways), False
    for bond in fact.bonds:
        links = ", ".join(f"{link.name} {'up' if link.is_up else 'down'}" for link in bond.links)  # as ip says it
        yield Shown(f"{bond.name} ({bond.mode})"), Shown(links) if links else NONE, False
    if fact.routing_rules:
        yield _named("routing_rules"), _joined(tuple(rule.text for rule in fact.routing_rules)), False
    if fact.local_port_range is not None:
        yield _named("port_range"), Shown("{}-{}".format(*fact.local_port_range)), False
    if fact.somaxconn is not None:
        yield _named("somaxconn"), _text(fact.somaxconn), False
    if fact.tcp_retries2 is not None:
        yield Shown("tcp_retries2"), _text(fact.tcp_retries2), False
    if any(fact.rp_filter.values()):
        filters = tuple(f"{name} {value}" for name, value in sorted(fact.rp_filter.items()) if value)
        yield Shown("rp_filter"), _joined(filters), False


def _transport(fact: f.TransportFacts) -> Iterator[Fact]:
    for label, choice in (("nccl_sockets", fact.nccl), ("gloo_sockets", fact.gloo)):
        yield _named(label), Shown(", ".join(choice.interfaces), choice=choice), False
    if fact.hcas or (fact.hcas is not None and fact.hcas_by):
        text = ", ".join(fact.hcas) or units.UNKNOWN
        yield _named("nccl_hcas"), Shown(f"{text} ({fact.hcas_by})" if fact.hcas_by else text), False


def _rdma(fact: f.RdmaFacts) -> Iterator[Fact]:
    if not fact.ports:
        yield Shown(key="group_rdma"), Shown(key="fact_rdma_none"), False
    if fact.others:
        yield _named("other_fabrics"), _joined(fact.others), False
    libraries = {"libibverbs": fact.has_library, "librdmacm": fact.has_cm_library}
    for library, is_here in libraries.items():
        if is_here is not None:
            yield Shown(library), _yes(is_it=is_here), False
    for port in fact.ports:
        rate = f" · {units.digits(port.rate_gbit_per_s)} Gbit/s" if port.rate_gbit_per_s else ""
        rate += f" · {port.num_lanes}X" if port.num_lanes else ""
        rate += f" · {port.provider}" if port.provider else ""
        rate += f" · {port.bond}: {', '.join(f'{k} {v}' for k, v in port.bonded.items())}" if port.bond else ""
        text = f"{port.state} · {port.physical_state} · {port.link_layer}{rate}"
        name = f"{port.device}/{port.port}"
        yield Shown(name), Shown(text), False
        index = port.roce_v2_index if port.link_layer == "Ethernet" else None
        if index is not None:
            yield _named("roce_v2_index", name), Shown(f"{index} ({port.gid_types[index][1]})"), False
        if port.firmware:
            yield _named("firmware", name), _text(port.firmware), False
        if port.counts:
            yield _named("errors_counted", name), _counts(port.counts), True
        if port.growth:
            yield _named("errors_now", name), _counts(port.growth), True


def _counts(counts: Mapping[str, int]) -> Shown:
    return Shown(", ".join(f"{name} {count}" for name, count in counts.items()))


def _gpu(fact: f.GpuFacts) -> Iterator[Fact]:
    models: dict[str, int] = {}
    for gpu in fact.gpus:
        model = f"{gpu.name} {units.size(gpu.memory_total_bytes)}"
        models[model] = models.get(model, 0) + 1
    text = ", ".join(f"{n} × {model}" for model, n in models.items())
    yield _named("gpus"), Shown(text) if text else Shown(key="fact_no_gpus"), False
    yield _named("driver"), _text(fact.driver_version), False
    yield _named("cuda"), _text(fact.cuda_version), False
    visible = Shown(",".join(map(str, fact.visible))) if fact.visible else NONE
    yield _named("visible"), visible, False
    if fact.gpus:
        used = ", ".join(units.size(g.memory_used_bytes) for g in fact.gpus)
        yield _named("gpu_used"), Shown(used), True
    if fact.num_amd:
        yield _named("gpus_amd"), _text(fact.num_amd), False
    generations = Counter(
        f"{g.max_pcie_generation} / {g.own_pcie_generation}" for g in fact.gpus if g.max_pcie_generation
    )
    if generations:
        yield _named("pcie_generation"), Shown(", ".join(f"{n} × {kind}" for kind, n in generations.items())), False
    persistent = Counter(
        "fact_times_on" if g.is_persistent else "fact_times_off" for g in fact.gpus if g.is_persistent is not None
    )
    if persistent:
        cells = tuple(Shown(str(n), key=key) for key, n in persistent.items())
        yield _named("persistence"), Shown(parts=cells), False
    for gpu in fact.gpus:
        if gpu.nvlink_errors:
            yield _named("nvlink_errors", str(gpu.index)), _counts(gpu.nvlink_errors), True
    kinds = Counter(
        (f"NV{p.num_nvlinks}" if p.num_nvlinks else p.level or units.UNKNOWN, p.p2p or f.P2pStatus.UNKNOWN)
        for p in fact.pairs
    )
    if kinds:
        cells = tuple(Shown(f"{n} × {between}", key=f"fact_p2p_{p2p}") for (between, p2p), n in kinds.items())
        yield _named("pairs"), Shown(parts=cells), False


def _software(fact: f.SoftwareFacts) -> Iterator[Fact]:
    for name, version in fact.versions.items():
        yield Shown(name), _text(version), False


def _imports(fact: f.ImportFacts) -> Iterator[Fact]:
    for one in fact.modules:
        yield Shown(f"import {one.module}"), _how_it_ended(one), False
        for name, version in one.versions.items():
            if name != one.module:
                yield Shown(name), _text(version), False
        if one.backends:
            yield _named("backends", one.module), _joined(one.backends), False
        if one.devices is not None:
            yield _named("devices", one.module), _devices(one.devices), False


def _devices(found: f.Devices) -> Shown:
    """What a module sees: "cuda · 8 × NVIDIA H200 · P2P 28 / 28"; of one that did not answer, how it ended."""
    if found.outcome != "answered":
        return _how_it_ended(found)
    parts = [found.platform, *(f"{n} × {name}" for name, n in Counter(found.names).items())]
    if found.peers_off is not None and len(found.names) > 1:
        num_pairs = math.comb(len(found.names), 2)
        parts.append(f"P2P {num_pairs - len(found.peers_off)} / {num_pairs}")
    return Shown(" · ".join([*parts, *([found.error] if found.error else [])]))


def _how_it_ended(one: f.ChildEnd) -> Shown:
    late = f"{one.limit_s:.1f} s" if one.outcome == "silent" else None
    if one.outcome == "died" and one.exit_code is not None and not (late or one.error or one.signal):
        return Shown(str(one.exit_code), key="fact_exit_code")
    why = late or one.error or one.signal
    if one.outcome == "imported" or (why and one.outcome in {"failed", "died", "silent"}):
        return Shown(why or "", key=f"fact_{one.outcome}")
    return Shown(f"{one.outcome} ({why})" if why else one.outcome)


def _limits(fact: f.LimitFacts) -> Iterator[Fact]:
    unlimited = Shown(key="fact_unlimited")
    yield _named("memlock"), unlimited if fact.memlock_bytes is None else _size(fact.memlock_bytes), False
    soft, hard = ("∞" if n is None else str(n) for n in (fact.nofile_soft, fact.nofile_hard))
    yield _named("nofile"), Shown(f"{soft} / {hard}"), False
    missing = Shown(key="fact_missing_dir")
    yield _named("shm"), missing if fact.shm_total_bytes is None else _size(fact.shm_total_bytes), False
    yield _named("shm_free"), missing if fact.shm_free_bytes is None else _size(fact.shm_free_bytes), True
    if fact.stack is not None:
        soft, hard = ("∞" if n is None else units.size(n) for n in (fact.stack.soft_bytes, fact.stack.hard_bytes))
        yield _named("stack"), Shown(f"{soft} / {hard}"), False
    if fact.cores is not None:
        yield _named("cores"), Shown(fact.cores.target, key=_CORES.get(fact.cores.place, "")), False


_CORES = {
    "nowhere": "fact_cores_nowhere",
    "program": "fact_cores_program",
    "socket": "fact_cores_socket",
    "folder": "fact_cores_folder",
    "working_folder": "fact_cores_working_folder",
}
"""Place of a core dump -> our text."""


def _size(num_bytes: int) -> Shown:
    return Shown(units.size(num_bytes))


def _env(fact: f.EnvFacts) -> Iterator[Fact]:
    for name, value in sorted(fact.variables.items()):
        yield Shown(name), Shown(value or '""'), False


def _clock(fact: f.ClockFacts) -> Iterator[Fact]:
    text = f"{units.time(fact.offset_s)} ± {units.time(fact.uncertainty_s)}"
    yield _named("clock"), Shown(text), True


def _script(fact: f.ScriptFacts) -> Iterator[Fact]:
    yield _named("script"), Shown(f"{fact.path} ({units.size(fact.size_bytes)})"), False
    yield _named("sha256"), Shown(fact.sha256[:16]), False


def _firewall(fact: f.FirewallFacts) -> Iterator[Fact]:
    yield _named("firewall"), _text(fact.tool) if fact.tool else Shown(key="fact_firewall_none"), False
    if fact.tool:
        yield _named("firewall_drops"), _text(len(fact.drops)), False


def _usage(fact: f.UsageFacts) -> Iterator[Fact]:
    for volume in fact.volumes:
        yield _named("free_on", volume.path), Shown(units.size(volume.free_bytes)), True
    if fact.memory_limit_bytes and fact.memory_used_bytes is not None:
        text = f"{units.size(fact.memory_used_bytes)} / {units.size(fact.memory_limit_bytes)}"
        yield _named("memory_limit"), Shown(text), True
    if fact.num_tracked is not None and fact.max_tracked:
        yield _named("tracked"), Shown(f"{fact.num_tracked} / {fact.max_tracked}"), True
    if fact.loaders:
        workers = tuple(f"{one.num_workers} (pid {one.pid}, CPU {one.cpus})" for one in fact.loaders)
        yield _named("loaders"), _joined(workers), True
    if fact.num_zombies:
        yield _named("zombies"), _text(fact.num_zombies), True
    if fact.asked_ports is not None:
        taken = tuple(f"{one.port} (pid {one.holder.pid or units.UNKNOWN})" for one in fact.listeners)
        yield _named("listeners", "{}-{}".format(*fact.asked_ports)), _joined(taken), True


def _bus(fact: f.BusFacts) -> Iterator[Fact]:
    for one in fact.gpus:
        numa = () if one.numa_node is None else (Shown(f"NUMA {one.numa_node}"),)
        yield Shown(one.address), Shown(parts=(Shown(str(len(one.bridges)), key="fact_bridges"), *numa)), True
    if fact.redirecting:
        yield _named("redirecting"), _joined(fact.redirecting), True
    elif fact.num_unread:
        yield _named("redirecting"), Shown(key="fact_unknown", why=FactMissing("only root may read it")), False
    yield _named("iommu"), Shown(fact.iommu, word="iommu") if fact.iommu else NONE, False


def _time(fact: f.TimeFacts) -> Iterator[Fact]:
    yield _named("synchronized"), _yes(is_it=fact.is_synchronized), False
    yield _named("time_services"), _joined(fact.services), False


def _master_port(fact: f.MasterPortFacts) -> Iterator[Fact]:
    why = " ".join(part for part in (fact.error, fact.service, fact.banner) if part)
    value = (
        Shown(key="fact_port_opened")
        if fact.opened
        else Shown(key="fact_port_failed", why=FactMissing.because(said("{error}", error=why)))
    )
    yield Shown(key="group_master_port"), value, True


def _master_contact(fact: f.MasterContactFacts) -> Iterator[Fact]:
    phrase = next(iter(fact.phrases.get("detail", ())), None)
    why = fact.detail
    detail = (Shown(key="fact_detail", why=FactMissing(why, phrase)),) if why else ()
    yield Shown(key="group_master_contact"), Shown(parts=(Shown(fact.outcome, word="outcome"), *detail)), True


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
    "imports": _imports,
    "limits": _limits,
    "clock": _clock,
    "script": _script,
    "firewall": _firewall,
    "usage": _usage,
    "bus": _bus,
    "time": _time,
    "master_port": _master_port,
    "master_contact": _master_contact,
}
GROUPS = tuple(_READERS)
"""The facts that have rows, in their order."""
