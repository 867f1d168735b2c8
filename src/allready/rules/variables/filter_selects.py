"""What a filter of interfaces or devices selects on this machine."""

import re
from collections.abc import Iterator
from itertools import takewhile

from allready.judging.addresses import is_private
from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, Interface, NetFacts, PerNode, RdmaFacts, Settings, Severity, SoftwareFacts
from allready.rules.variables._settings import hit, known, remedy, this, versions
from allready.variables.filters import (
    MAX_INTERFACES,
    MAX_PARTS,
    RAILS_SINCE,
    exact_flaws,
    exact_names,
    flaws,
    more_than_meant,
    parse,
    ucx_flaws,
    ucx_selects,
)
from allready.variables.meaning import in_order
from allready.variables.table import Type, Variable
from allready.variables.versions import found_of


@Rule(
    code="VAR015",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="NCCL reads a filter differently from what it seems to say",
    message="{name}={value}: NCCL takes {entry} literally; there are no wildcards, blanks count, ^ and = have a "
    "meaning only in front of the whole list, as ^, = or ^=, and behind a device stand port and, since 2.30, rail "
    "and plane",
    remedy=remedy("write the list without blanks, with at most one ^ or = in front of it: {example}"),
)
def filter_misread(settings: Settings, software: PerNode[SoftwareFacts] | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    The lists in NCCL_SOCKET_IFNAME, NCCL_OOB_NET_IFNAME and NCCL_IB_HCA: blanks, wildcards (eth*), other separators
    than a comma, a ^ or = in front of a later entry, =^ instead of ^=, ports that are no numbers, and more numbers
    behind a device than the NCCL found reads: port, since 2.30 also rail and plane.
    ## Why it matters
    NCCL cuts nothing off: "eth0, eth1" asks for an interface called " eth1", ^lo,^docker0 leaves docker0 in, and
    eth* is the beginning of no name (eth is).
    ## Check by hand
    `allready env explain NAME --value VALUE` shows what the value selects on this machine.
    ## When it is harmless
    When the other entries alone select what is wanted.
    """
    nccl = found_of("nccl", versions(software))
    for variable, same in known(settings):
        value = same.value
        if value is None or variable.type not in {Type.IFNAMES, Type.HCAS}:
            continue
        has_rails = variable.type is Type.HCAS and not (nccl and nccl < RAILS_SINCE)
        flaw = next((f for f in flaws(value, has_rails=has_rails) if f.kind != "empty-entry"), None)
        if flaw is not None:
            yield hit(same, entry=repr(flaw.entry), example=_cleaned(value, MAX_PARTS if has_rails else 2))


def _cleaned(value: str, most: int) -> str:
    """The list as its author most likely means it."""
    words = re.split(r"[,;|\s]+", value.strip())
    marks = {mark for word in words for mark in word[: len(word) - len(word.lstrip("^="))]}
    front = "".join(mark for mark in "^=" if mark in marks)
    bare = (re.split(r"[*?\[]", word.lstrip("^= "))[0].split(":") for word in words)
    return front + ",".join(
        ":".join([name, *takewhile(str.isdecimal, parts[: most - 1])]) for name, *parts in bare if name
    )


@Rule(
    code="VAR016",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="A list of interface names has marks or blanks that its reader does not know",
    message="{name}={value}: it takes exact names separated by commas, and no interface is called {entry}",
    remedy=remedy("write exact names, without ^, = and blanks: {name}=eth0"),
)
def filter_syntax_foreign(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    GLOO_SOCKET_IFNAME and TP_SOCKET_IFNAME: entries with the marks ^ and = of NCCL's filters, with wildcards or blanks,
    or empty; UCX_NET_DEVICES: entries with =, or with ^ behind the first.
    ## Why it matters
    Gloo knows exact names only and ends with "Unable to find address for: ^lo". The same value in NCCL_SOCKET_IFNAME is
    right, which is why it is copied.
    ## Check by hand
    `ip -brief address` lists the names.
    ## When it is harmless
    When the job uses neither Gloo nor RPC; DistributedDataParallel with NCCL alone does not read it.
    """
    for variable, same in known(settings):
        value = same.value
        if not value or len(value) < 2:
            continue
        if variable.type is Type.EXACT_IFNAMES:
            for flaw in exact_flaws(value)[:1]:
                yield hit(same, entry=repr(flaw.entry))
        elif variable.type is Type.UCX_DEVICES:
            for flaw in ucx_flaws(value)[:1]:
                yield hit(same, entry=repr(flaw.entry))


MAX_SHOWN = 8


@Rule(
    code="VAR017",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="A filter selects nothing on this machine",
    message="{name}={value} selects nothing here; there are: {there}",
    remedy=remedy("name what this machine has, or leave {name} out; there are: {there}"),
)
def filter_selects_nothing(
    settings: Settings, net: PerNode[NetFacts] | None = None, rdma: PerNode[RdmaFacts] | None = None
) -> Iterator[Hit]:
    """
    ## What it checks
    NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME and TP_SOCKET_IFNAME against the interfaces that have an address here,
    NCCL_IB_HCA against the RDMA ports that are ACTIVE, and UCX_NET_DEVICES against both. Each by its own grammar. Only
    for this environment and for files that are run here.
    ## Why it matters
    Without an interface NCCL and Gloo fail at start. Without a device NCCL falls back to TCP, with a tenth of the
    bandwidth and no error.
    ## Check by hand
    `ip -brief address`; `ls /sys/class/infiniband`; `allready env explain NAME --value VALUE`.
    ## When it is harmless
    When the job runs on other machines (`--elsewhere` says so).
    """
    interfaces = this(net)
    ports = this(rdma)
    for variable, same in known(settings, here=True):
        value = same.value
        if not value or len(value) < 2:  # libraries pass over one letter
            continue
        there = _there(variable, interfaces, ports)
        if there and _selects_nothing(variable, value, there):
            severity = Severity.ERROR if variable.type in {Type.HCAS, Type.UCX_DEVICES} else None
            shown = ", ".join(there[:MAX_SHOWN]) + (", ..." if len(there) > MAX_SHOWN else "")
            yield hit(same, severity=severity, confidence=same.sureness, there=shown)


def _there(variable: Variable, net: NetFacts | None, rdma: RdmaFacts | None) -> list[str]:
    """What the filter could select: names of interfaces, or `mlx5_0:1`; [] where nothing is known or there."""
    cards = [i.name for i in net.interfaces if i.addresses] if net else []
    devices = [f"{p.device}:{p.port}" for p in rdma.ports if p.state == "ACTIVE"] if rdma else []
    match variable.type:
        case Type.IFNAMES | Type.EXACT_IFNAMES:
            return cards
        case Type.HCAS if variable.name == "NCCL_IB_HCA":
            return devices
        case Type.UCX_DEVICES if net and rdma:
            return devices + cards
    return []


def _selects_nothing(variable: Variable, value: str, there: list[str]) -> bool:
    match variable.type:
        case Type.IFNAMES:
            return not flaws(value) and not any(parse(value, most=MAX_INTERFACES).selects(name) for name in there)
        case Type.EXACT_IFNAMES:
            return not exact_flaws(value) and not all(name in there for name in exact_names(value))
        case Type.HCAS:
            pairs = [name.partition(":") for name in there]
            return not flaws(value) and not any(parse(value).selects(n, int(port)) for n, _, port in pairs)
    return not ucx_selects(value, there)


@Rule(
    code="VAR018",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="A filter selects more than the device that it names",
    message="{name}={value}: {entry} is read as a prefix and selects {others} as well",
    remedy=remedy("put = in front for exact names: {name}={better}"),
)
def filter_selects_more(
    settings: Settings, net: PerNode[NetFacts] | None = None, rdma: PerNode[RdmaFacts] | None = None
) -> Iterator[Hit]:
    """
    ## What it checks
    NCCL_SOCKET_IFNAME and NCCL_IB_HCA with the full name of an interface or device that is also the beginning of others
    here: eth1 beside eth10, mlx5_1 beside mlx5_10 and mlx5_11.
    ## Why it matters
    NCCL compares prefixes unless the list begins with =. The job uses network cards that were to be left out, such as
    those for storage.
    ## Check by hand
    `allready env explain NAME --value VALUE` lists what it selects here.
    ## When it is harmless
    When all of them may be used.
    """
    interfaces, devices = this(net), this(rdma)
    cards = [i.name for i in interfaces.interfaces] if interfaces else []
    hcas = sorted({p.device for p in devices.ports}) if devices else []
    for variable, same in known(settings, here=True):
        value = same.value
        there = {Type.IFNAMES: cards, Type.HCAS: hcas}.get(variable.type, [])
        if value is None or not there:
            continue
        for entry, others in list(more_than_meant(value, there).items())[:1]:
            better = f"={value}"
            yield hit(
                same,
                confidence=same.sureness,
                entry=entry,
                others=", ".join(others[:8]),
                better=better,
                command=same.export(better),
            )


@Rule(
    code="VAR019",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="A filter leads NCCL to an interface that ends in this machine",
    message="{name}={value} makes {first} the first interface of NCCL here; other nodes cannot reach it",
    remedy=remedy("select {better} instead, for example {name}={better}"),
)
def filter_selects_loopback(settings: Settings, net: PerNode[NetFacts] | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    Whether the first interface that NCCL_SOCKET_IFNAME selects here is the loopback or a bridge for containers,
    although another one has an address. A list of what to leave out (^docker0) takes the place of the default, which
    leaves out lo and docker*.
    ## Why it matters
    NCCL gives the address of its first interface to the other nodes, which then connect to themselves: the job hangs
    at start, or ends with "Connection refused".
    ## Check by hand
    `allready env explain NCCL_SOCKET_IFNAME --value VALUE`.
    ## When it is harmless
    When the job runs on one node.
    """
    interfaces = this(net)
    usable = [i for i in interfaces.interfaces if i.addresses and i.is_up] if interfaces else []
    better = next((i.name for i in usable if not _ends_here(i)), None)
    if better is None or settings.is_cluster is False:
        return
    for variable, same in known(settings, here=True):
        value = same.value
        if variable.type is not Type.IFNAMES or not value or len(value) < 2 or flaws(value):
            continue
        chosen = parse(value, most=MAX_INTERFACES)
        first = next((i for i in in_order(usable) if chosen.selects(i.name)), None)
        # Naming lo is right on one node: it is a mistake only where there are several.
        if first is not None and _ends_here(first) and (chosen.exclude or settings.is_cluster):
            yield hit(same, confidence=same.sureness, first=first.name, better=better, command=same.export(better))


def _ends_here(interface: Interface) -> bool:
    return interface.is_loopback or is_private(interface.name)
