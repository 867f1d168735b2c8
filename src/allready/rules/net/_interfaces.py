"""How addresses, interfaces and routes fit together.  Facts come from other machines: nothing here raises."""

import functools
import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from allready import model
from allready.judging.addresses import is_private
from allready.judging.analysis import Analysis
from allready.judging.node_split import exports
from allready.judging.stated import said
from allready.judging.values import commands, nccl_nodes, on_nodes, seen
from allready.model.addresses import Address, Network, is_loopback, is_within, parse, parse_network
from allready.patterns import compiled
from allready.text.choices import say_choice

Interfaced = ipaddress.IPv4Interface | ipaddress.IPv6Interface

_VETH = r"veth.*"


@functools.lru_cache(maxsize=65536)
def parse_interface(text: str) -> Interfaced | None:
    """`10.0.0.1/24` as an address with its network; None when it is not one."""
    """`10.0.0.1/24` as an address with its network; None when it is not one."""
    try:
        return ipaddress.ip_interface(text)
    except ValueError:
        return None


def own_networks(interface: model.Interface) -> Iterator[Interfaced]:
    """Addresses of the interface with their networks, without link-local ones (every node has those) and loopback."""
    for parsed in map(parse_interface, interface.addresses):
        if parsed is not None and not parsed.ip.is_loopback and not parsed.ip.is_link_local:
            yield parsed


def subnets(interface: model.Interface) -> list[Network]:
    """Networks that the interface is directly in."""
    return [parsed.network for parsed in own_networks(interface)]


def holder(net: model.NetFacts | None, address: str | None) -> model.Interface | None:
    """The interface that has this address."""
    wanted = parse(address or "")
    if net is None or wanted is None:
        return None
    having = (i for i in net.interfaces if any((p := parse_interface(a)) and p.ip == wanted for a in i.addresses))
    return next(having, None)


def route_to(net: model.NetFacts, address: str) -> tuple[str, int] | None:
    """Name of the interface towards `address` and the length of the matching prefix (0: only the default route)."""
    wanted = parse(address)
    if wanted is None:
        return None
    direct = [(n, 0, i.name) for i in net.interfaces if i.is_up for n in subnets(i)]
    routed = [(n, -r.metric, r.interface) for r in net.routes if (n := parse_network(r.destination)) is not None]
    found = [(n.prefixlen, order, name) for n, order, name in (*direct, *routed) if wanted in n]
    if not found:
        return None
    length, _, name = max(found)
    return name, length


def are_told_apart(net: model.NetFacts, names: Sequence[str]) -> bool:
    """Whether rules of policy routing choose a table by the addresses of these interfaces, of all but one at least."""
    networks = [rule.source for rule in net.routing_rules if rule.source and not rule.is_marked]
    by_name = {i.name: i.bare_addresses for i in net.interfaces}
    inside = [any(is_within(address, networks) for address in by_name.get(name, ())) for name in names]
    return sum(inside) >= len(names) - 1


def has_other_tables(net: model.NetFacts) -> bool:
    """Whether the route may be in a table that was not read: rules of policy routing send packets there."""
    return any(not rule.is_marked for rule in net.routing_rules)


def machine(net: model.NetFacts, host: model.HostFacts | None) -> tuple[object, ...]:
    """Equal for two nodes that are processes on one machine (and in one network namespace), else different."""
    cards = sorted((i.name, i.mac or "", i.addresses) for i in net.interfaces if not i.is_loopback)
    return (host.boot_id or host.hostname if host else "", tuple(cards))


def is_veth(name: str) -> bool:
    """Whether the name is that of the host's end of a container's veth pair; it may also be a real link."""
    return compiled(_VETH).fullmatch(name) is not None


def has_nccl_syntax(choice: model.InterfaceChoice) -> bool:
    """Whether the value excludes or pins interfaces as only NCCL understands it."""
    return any(name.lstrip().startswith(("^", "=")) for name in (choice.pattern or "").split(","))


class Chosen(Struct, frozen=True):
    """The interfaces that one library chose on one node."""

    node: int
    backend: str  # NCCL or Gloo
    choice: model.InterfaceChoice
    needed: bool  # this job will use the library

    @property
    def names(self) -> str:
        """The interfaces, joined by commas."""
        return ",".join(self.choice.interfaces)

    @property
    def text(self) -> model.Phrase:
        """Interfaces, addresses and the reason of the choice, as evidence."""
        addresses = ",".join(self.choice.addresses)
        return said("{names} ({addresses}): {why}", names=self.names, addresses=addresses, why=say_choice(self.choice))


def choices(case: Analysis) -> tuple[Chosen, ...]:
    """NCCL's and Gloo's choice on every node.

    Gloo counts as needed in every torch job: CPU tensors, `monitored_barrier` and checkpoints use it beside NCCL.
    """
    transport, launch = case.facts(model.TransportFacts), case.facts(model.LaunchFacts)
    users = nccl_nodes(transport, launch, case.facts(model.GpuFacts))
    found = []
    for node, facts in transport.items():
        job = launch.get(node)
        found.append(Chosen(node, "NCCL", facts.nccl, node in users))
        found.append(Chosen(node, "Gloo", facts.gloo, job is None or job.framework != "jax" or node not in users))
    return tuple(found)


def needed_choices(case: Analysis) -> dict[int, list[Chosen]]:
    """Working choices of the libraries that the job uses, by node."""
    found: dict[int, list[Chosen]] = {}
    for chosen in case.of(choices):
        if chosen.needed and chosen.choice.failure is None and chosen.choice.interfaces:
            found.setdefault(chosen.node, []).append(chosen)
    return found


def good_interface(
    node: int, net: model.NetFacts, roll: model.RollCall | None, avoid: Iterable[str] = ()
) -> str | None:
    """The interface that NCCL and Gloo should use on this node; None when none qualifies.

    First the one whose address node 0 sees, then the one that routes to the other nodes, then any that could.
    `avoid`: addresses that cannot be used (several nodes have them).
    """
    bad = set(map(parse, avoid))
    fit = {i.name for i in net.interfaces if _is_fit(i, bad)}
    claims = roll.claims if roll is not None else ()
    seen_by_node_0 = next((c.address for c in claims if c.node_rank == node and c.refused is None), None)
    interface = holder(net, seen_by_node_0)
    if interface and interface.name in fit:
        return interface.name
    others = (c.address for c in claims if c.node_rank != node and not is_loopback(c.address))
    for _, address in zip(range(4), others, strict=False):
        route = route_to(net, address)
        if route and route[0] in fit:
            return route[0]
    return min(fit, default=None)


def _is_fit(interface: model.Interface, bad: set[Address | None]) -> bool:
    if not interface.is_up or interface.is_loopback or is_private(interface.name) or is_veth(interface.name):
        return False
    return any(parsed.ip not in bad for parsed in own_networks(interface))


def exports_on(
    case: Analysis, nodes: Iterable[int], variables: Iterable[str], avoid: Iterable[str] = ()
) -> tuple[dict[str, str | None], ...]:
    """The commands that set `variables` on `nodes` to an interface that leads to the others, for a remedy's step."""
    net, avoid, nodes = case.facts(model.NetFacts), tuple(avoid), list(nodes)
    better = {n: name for n in nodes[:64] if n in net and (name := good_interface(n, net[n], case.roll, avoid))}
    return commands(case.world, (e for variable in variables for e in exports(variable, better, nodes)))


def choice_hit(
    case: Analysis,
    found: Mapping[int, Chosen],
    texts: Mapping[int, str] | Mapping[int, model.Phrase],
    *,
    avoid: Iterable[str] = (),
    severity: model.Severity | None = None,
    confidence: model.Confidence = model.Confidence.CERTAIN,
    **values: object,
) -> model.Hit:
    """The hit of a rule about what one library chose.

    Args:
        case: what is judged.
        found: node -> its choice; not empty.
        texts: evidence of each node.
        avoid: addresses that cannot be used.
        severity, confidence: of the hit.
        values: of the message, besides library, variable, nodes and exports.
    """
    nodes = tuple(sorted(found))
    first = found[nodes[0]]
    variable = first.choice.variable
    is_set = any(item.choice.pattern for item in found.values())
    return model.Hit(
        severity=severity,
        confidence=confidence,
        culprits=model.Culprits(nodes=nodes, variables=(variable,) if is_set else ()),
        values={
            "library": first.backend,
            "variable": variable,
            "nodes": on_nodes(case.world, nodes),
            "exports": exports_on(case, nodes, [variable], avoid),
            **values,
        },
        evidence=seen(variable, texts),
    )


def shared_addresses(case: Analysis) -> dict[str, tuple[int, ...]]:
    """Address -> the nodes that chose it, where these are different machines.  Loopback is left to other rules."""
    net, host = case.facts(model.NetFacts), case.facts(model.HostFacts)
    users: dict[str, set[int]] = {}
    for node, items in case.of(needed_choices).items():
        for address in (a for item in items for a in item.choice.addresses if not is_loopback(a)):
            users.setdefault(address, set()).add(node)
    return {
        address: tuple(sorted(nodes))
        for address, nodes in users.items()
        if len(nodes) > 1 and len({machine(net[n], host.get(n)) for n in nodes if n in net}) > 1
    }
