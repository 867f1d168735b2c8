"""Which interfaces NCCL and Gloo will really use on this node, and why: their own search, replayed.

Facts: NCCL 2.18 to 2.30 `ncclFindInterfaces`, torch's `ProcessGroupGloo` and Gloo's tcp device.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from allready.errors import FactUnavailable
from allready.facts.env import nccl_conf
from allready.facts.host import Host
from allready.model import (
    ChoiceError,
    ChoiceFault,
    ChoiceStep,
    FactMissing,
    Interface,
    InterfaceChoice,
    NameFacts,
    NetFacts,
    RdmaFacts,
    TransportFacts,
)
from allready.variables.filters import MAX_HCAS, MAX_INTERFACES, exact_names, parse

NCCL_SKIPS_VIRBR_AND_DOWN = (2, 28)  # first version that leaves out virbr* and checks IFF_RUNNING
LOOPBACK = "127.0.0.1"

Named = tuple[str, str]  # (interface, address)


def collect_transport(
    host: Host,
    *,
    net: NetFacts | FactMissing,
    names: NameFacts | FactMissing,
    nccl_version: str | None,
    rdma: RdmaFacts | FactMissing | None = None,
    conf: Mapping[str, str] | None = None,
) -> TransportFacts:
    """What both libraries will choose, from facts that were read before.

    rdma: None where it is not asked which RDMA ports NCCL takes.
    conf: the variables of NCCL's configuration files; None: to be read.
    """
    if isinstance(net, FactMissing):
        raise FactUnavailable("interfaces: {why}", why=net)
    own = () if isinstance(names, FactMissing) else names.own_addresses
    # NCCL's configuration files fill in what the environment leaves open.
    environ = {**(nccl_conf(host) if conf is None else conf), **host.environ}
    return TransportFacts(
        nccl=choose_nccl(net.interfaces, environ, version=version_tuple(nccl_version), resolve=_resolver(host)),
        gloo=choose_gloo(net.interfaces, environ, own_addresses=own),
        **choose_hcas(rdma, environ),
    )


def choose_hcas(rdma: RdmaFacts | FactMissing | None, environ: Mapping[str, str]) -> dict[str, Any]:
    """`hcas` and `hcas_by` of the facts: ports that are ACTIVE, of InfiniBand or RoCE, and that NCCL_IB_HCA selects.

    NCCL takes other fabrics (EFA) by a plugin.  At most 32 ports.
    """
    if not isinstance(rdma, RdmaFacts):
        return {}
    disabled = environ.get("NCCL_IB_DISABLE", "")
    if rdma.ports and disabled.strip() not in {"", "0"}:
        return {"hcas": (), "hcas_by": f"NCCL_IB_DISABLE={disabled}"[:128]}
    value = environ.get("NCCL_IB_HCA", "")
    wanted = parse(value)
    ports = [p for p in rdma.ports if p.state == "ACTIVE" and p.link_layer in {"InfiniBand", "Ethernet"}]
    found = [f"{p.device}:{p.port}" for p in ports if not value or wanted.selects(p.device, p.port)]
    by = f"NCCL_IB_HCA={value}"[:128] if value and rdma.ports else ""
    return {"hcas": tuple(found[:MAX_HCAS]), "hcas_by": by}


def choose_nccl(
    interfaces: Sequence[Interface],
    environ: Mapping[str, str],
    *,
    version: tuple[int, int] | None = None,
    resolve: Callable[[str], tuple[str, ...]] | None = None,
) -> InterfaceChoice:
    """The interfaces of NCCL's sockets.

    Args:
        interfaces: in the order of getifaddrs(3), as `NetFacts.interfaces` are.
        version: NCCL's (major, minor); None is taken as the newest known.
        resolve: addresses of a host name in NCCL_COMM_ID; may raise FactUnavailable.  None: only numeric ones.
    """
    newer = version is None or version >= NCCL_SKIPS_VIRBR_AND_DOWN
    pattern = environ.get("NCCL_SOCKET_IFNAME")
    rows = _nccl_candidates(interfaces, environ.get("NCCL_SOCKET_FAMILY"), only_running=newer)
    found, step, names = _search(interfaces, rows, environ, pattern, newer=newer, resolve=resolve)
    failure = None if found else _nccl_error(interfaces, environ, pattern)
    comm_id = environ.get("NCCL_COMM_ID")
    is_set_up_by_comm_id = False
    if comm_id:  # the bootstrap then reads nothing else
        first = _same_subnet(interfaces, _comm_id_address(comm_id, resolve))
        if first is None:
            failure = ChoiceError(fault=ChoiceFault.NOT_IN_SUBNET, name=comm_id)
        else:
            found = [first, *(row for row in found if row[0] != first[0])][:MAX_INTERFACES]
            is_set_up_by_comm_id = True
    return InterfaceChoice(
        variable="NCCL_SOCKET_IFNAME",
        pattern=pattern,
        interfaces=tuple(name for name, _ in found),
        addresses=tuple(address for _, address in found),
        step=step,
        names=names,
        is_set_up_by_comm_id=is_set_up_by_comm_id,
        failure=failure,
    )


def choose_gloo(
    interfaces: Sequence[Interface], environ: Mapping[str, str], *, own_addresses: Sequence[str] = ()
) -> InterfaceChoice:
    """The interfaces of torch's Gloo sockets.

    `own_addresses`: what this machine's host name resolves to, in the resolver's order; () when it does not.
    """
    variable = "GLOO_SOCKET_IFNAME"
    pattern = environ.get(variable)
    if pattern and len(pattern) > 1:  # torch ignores a value of one character
        return _gloo_by_name(interfaces, variable, pattern)
    found, step = _gloo_default(interfaces, own_addresses)
    return InterfaceChoice(
        variable=variable,
        pattern=pattern,
        interfaces=(found[0],) if found else (),
        addresses=(found[1],) if found else (),
        step=step,
        failure=None if found else ChoiceError(fault=ChoiceFault.NO_LOOPBACK, name=LOOPBACK),
    )


def version_tuple(text: str | None) -> tuple[int, int] | None:
    """(2, 28) of "2.28.9"; None when there is no such number."""
    match = re.match(r"(\d{1,3})\.(\d{1,3})", text or "")
    return (int(match[1]), int(match[2])) if match else None


def _search(
    interfaces: Sequence[Interface],
    rows: Sequence[Named],
    environ: Mapping[str, str],
    pattern: str | None,
    *,
    newer: bool,
    resolve: Callable[[str], tuple[str, ...]] | None,
) -> tuple[list[Named], ChoiceStep, tuple[str, ...]]:
    """NCCL's steps in their order; the first that finds something ends the search."""
    if pattern and len(pattern) > 1:  # NCCL ignores a value of one character
        return _matching(rows, pattern), ChoiceStep.NAMED, ()
    if found := _matching(rows, "ib"):
        return found, ChoiceStep.IB, ()
    comm_id = environ.get("NCCL_COMM_ID")
    if comm_id and len(comm_id) > 1:
        match = _same_subnet(interfaces, _comm_id_address(comm_id, resolve))
        if match:
            return [match], ChoiceStep.COMM_ID, ()
    last = ("docker", "lo", *(("virbr",) if newer else ()))
    if found := _matching(rows, f"^{','.join(last)}"):
        return found, ChoiceStep.ALL_BUT, tuple(f"{name}*" for name in last)
    for name in last:
        if found := _matching(rows, name):
            return found, ChoiceStep.ONLY, (f"{name}*",)
    return [], ChoiceStep.NONE, ()


def _nccl_candidates(interfaces: Sequence[Interface], family: str | None, *, only_running: bool) -> list[Named]:
    """(name, first address) in NCCL's order: IPv4 addresses of all interfaces, then IPv6 ones, ::1 never."""
    wanted = {"AF_INET": (4,), "AF_INET6": (6,)}.get(family or "", (4, 6))
    found: dict[str, str] = {}
    for number in wanted:
        for i in interfaces:
            for address in _addresses(i, number) if i.is_up or not only_running else ():
                if address != "::1":
                    found.setdefault(i.name, address)
    return list(found.items())


def _matching(rows: Sequence[Named], pattern: str) -> list[Named]:
    """Rows that a value of NCCL_SOCKET_IFNAME selects; at most 16."""
    chosen = parse(pattern, most=MAX_INTERFACES)
    return [row for row in rows if chosen.selects(row[0])][:MAX_INTERFACES]


def _nccl_error(interfaces: Sequence[Interface], environ: Mapping[str, str], pattern: str | None) -> ChoiceError:
    family = environ.get("NCCL_SOCKET_FAMILY", "")
    forced = family if family in {"AF_INET", "AF_INET6"} else ""
    if not pattern or len(pattern) < 2:
        return ChoiceError(fault=ChoiceFault.NO_INTERFACE, family=forced)
    by_name = _matching([(i.name, "") for i in interfaces], pattern)
    if not by_name:
        return ChoiceError(fault=ChoiceFault.NO_MATCH, name=pattern)
    names = ", ".join(name for name, _ in by_name[:4])
    return ChoiceError(fault=ChoiceFault.MATCH_IS_DOWN, name=names, pattern=pattern, family=forced)


def _comm_id_address(comm_id: str, resolve: Callable[[str], tuple[str, ...]] | None) -> str | None:
    """The address in "IP:port", "[IPv6]:port" or "host:port"."""
    name = comm_id[1:].partition("]")[0] if comm_id.startswith("[") else comm_id.partition(":")[0]
    name = name.partition("%")[0]
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        found = resolve(name) if resolve else ()
    except FactUnavailable:
        return None
    return found[0] if found else None


def _same_subnet(interfaces: Sequence[Interface], address: str | None) -> Named | None:
    """The first interface, up or not, whose subnet contains the address."""
    if address is None:
        return None
    wanted = ipaddress.ip_address(address)
    for number in (4, 6):
        for i in interfaces:
            for cidr in i.addresses:
                own = ipaddress.ip_interface(cidr)
                if own.version == number == wanted.version and wanted in own.network:
                    return i.name, str(own.ip)
    return None


def _gloo_by_name(interfaces: Sequence[Interface], variable: str, pattern: str) -> InterfaceChoice:
    """A list of exact names; Gloo takes the first address of each, whether the interface is up or not."""
    found: list[Named] = []
    failure = None
    for name in exact_names(pattern):
        interface = next((i for i in interfaces if i.name == name), None)
        address = next((a for n in (4, 6) for a in _addresses(interface, n)), None) if interface else None
        if address is not None:
            found.append((name, address))
        elif failure is None:
            failure = _gloo_error(interface, name)
    return InterfaceChoice(
        variable=variable,
        pattern=pattern,
        interfaces=tuple(name for name, _ in found),
        addresses=tuple(address for _, address in found),
        step=ChoiceStep.NAMED,
        failure=failure,
    )


def _gloo_error(interface: Interface | None, name: str) -> ChoiceError:
    if interface is not None:
        fault = ChoiceFault.NO_ADDRESS
    elif not name:
        fault = ChoiceFault.EMPTY_ENTRY
    elif name[0] in "^=":
        fault = ChoiceFault.NCCL_SYNTAX
    else:
        fault = ChoiceFault.BLANKS if name != name.strip() else ChoiceFault.NO_SUCH_NAME
    return ChoiceError(fault=fault, name=name)


def _gloo_default(interfaces: Sequence[Interface], own_addresses: Sequence[str]) -> tuple[Named | None, ChoiceStep]:
    for address in own_addresses:
        if found := _bindable(interfaces, address):
            return found, ChoiceStep.HOST_NAME
    step = ChoiceStep.NAME_OF_ANOTHER if own_addresses else ChoiceStep.NAME_UNRESOLVED
    return _bindable(interfaces, LOOPBACK), step


def _bindable(interfaces: Sequence[Interface], address: str) -> Named | None:
    """The interface on which this address can be bound, with the address."""
    try:
        wanted = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    for i in interfaces:
        for cidr in i.addresses:
            own = ipaddress.ip_interface(cidr)
            whole_net = i.is_loopback and wanted.version == 4  # all of 127.0.0.0/8 can be bound, not only 127.0.0.1
            if own.version == wanted.version and (own.ip == wanted or (whole_net and wanted in own.network)):
                return i.name, str(wanted)
    return None


def _addresses(interface: Interface, version: int) -> Iterator[str]:
    for cidr in interface.addresses:
        own = ipaddress.ip_interface(cidr)
        if own.version == version:
            yield str(own.ip)


def _resolver(host: Host) -> Callable[[str], tuple[str, ...]]:
    return lambda name: host.resolve(name, timeout_s=2.0)
