from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from msgspec.structs import replace

from allready import model
from allready.judging.addresses import is_private
from allready.judging.analysis import Analysis
from allready.judging.majority import Split
from allready.judging.node_split import brief
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said, stated
from allready.judging.values import grouped, seen
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    Hit,
    Interface,
    InterfaceChoice,
    NetFacts,
    PerNode,
    RdmaFacts,
    RemedyStep,
    Severity,
    TransportFacts,
    UsageFacts,
    World,
)
from allready.model.addresses import is_loopback, parse
from allready.model.facts import ChoiceStep
from allready.rules.net._interfaces import (
    Chosen,
    are_told_apart,
    choice_hit,
    has_other_tables,
    holder,
    needed_choices,
    route_to,
    shared_addresses,
    subnets,
)
from allready.rules.net._paths import path_evidence
from allready.text.choices import say_choice

DEFAULT = "0.0.0.0/0"


@Rule(
    code="NET028",
    severity=Severity.INFO,
    fault_class=FaultClass.START_PATH,
    layer=Layer.READINESS,
    title="A library chose another interface than the one by which packets leave",
    message="node {node}: {library} will publish {address} of {interface}, and packets [[to {peer} leave by "
    "{route}|to other networks leave by {default} (default route)|leave by another interface]]",
    remedy=(
        RemedyStep(
            explanation="see by which interface the other nodes are reached",
            where="node {node}",
            command="ip route get {peer}; ip -br address",
        ),
        RemedyStep(
            explanation="if they are not reached by {interface}, set the interface",
            where="node {node}",
            command="export {variable}={way}",
        ),
    ),
)
def beside_default_route(
    transport: PerNode[TransportFacts], net: PerNode[NetFacts], world: World, case: Analysis
) -> Iterator[Hit]:
    """
    ## What it checks
    The first interface that NCCL or Gloo takes where no variable names one (it is the one for the set-up) against the
    routes of this machine: with `doctor --peers`, whether a peer is reached by another interface; else, for a job of
    several nodes, whether the default route leads through another one. Information only. InfiniBand interfaces, which
    NCCL prefers, loopback, and machines with rules of policy routing are not judged, nor are nodes that can be compared
    with each other: `allready check` tries the paths themselves.
    ## Why it matters
    Peers connect to the address that is published. On a machine with networks for management, storage and the job, the
    first interface of the kernel's list need not be one that they can reach: the first connection then hangs.
    ## Check by hand
    `ip route get PEER`; `ip -br address`.
    ## When it is harmless
    On clusters whose nodes have a network for their jobs beside the one with the default route.
    """
    usage = case.facts(UsageFacts)
    for node, items in case.of(needed_choices).items():
        facts = net.get(node)
        if facts is None or len(net) > 1 or has_other_tables(facts):
            continue
        peers = usage[node].asked_peers if node in usage else ()
        for item in items:
            interface = _chosen(item.choice, facts)
            way = _way(facts, interface, peers, several=world.num_nodes > 1) if interface else None
            if way is not None:
                peer, route = way
                yield Hit(
                    confidence=Confidence.POSSIBLE,
                    culprits=Culprits(nodes=(node,)),
                    values={
                        "node": world.label(node),
                        "library": item.backend,
                        "interface": interface,
                        "address": item.choice.addresses[0],
                        "peer": peer,
                        "route": None if peer is None else route,
                        "default": route if peer is None else None,
                        "variable": item.choice.variable,
                        "way": route,
                    },
                    evidence=seen("routes", {node: "; ".join(_shown(facts))}),
                )


def _chosen(choice: InterfaceChoice, facts: NetFacts) -> str | None:
    """The interface that a library uses for the set-up; None where it is configured so, or has no other to choose."""
    address = choice.addresses[0] if choice.addresses else ""
    interface = holder(facts, address)
    if interface is None or choice.pattern or choice.step is ChoiceStep.COMM_ID or choice.is_set_up_by_comm_id:
        return None
    return None if is_loopback(address) or ":" in address or interface.kind == "infiniband" else choice.interfaces[0]


def _way(facts: NetFacts, interface: str, peers: tuple[str, ...], *, several: bool) -> tuple[str | None, str] | None:
    """A peer (None where none was named) and the interface by which packets leave to it; None where that fits."""
    for peer in peers:
        route = route_to(facts, peer)
        if route is not None and not is_loopback(peer) and route[0] != interface:
            return peer, route[0]
    defaults = sorted({r.interface for r in facts.routes if r.destination == DEFAULT})
    if peers or not several or not defaults or interface in defaults:
        return None
    return None, defaults[0]


def _shown(facts: NetFacts) -> Iterator[str]:
    for route in facts.routes[:8]:
        yield f"{route.destination} {f'via {route.gateway} ' if route.gateway else ''}dev {route.interface}"


_REAL = frozenset({"ethernet", "infiniband", "vlan", "bond", "wireless"})
_OF_CONTAINERS = frozenset({"veth", "other"})
"""Kinds of the interfaces inside a container (veth, macvlan, ipvlan), and of the host's ends of them, which have no
address of a network."""


@Rule(
    code="NET020",
    severity=Severity.INFO,
    fault_class=FaultClass.START_PATH,
    layer=Layer.READINESS,
    title="Two interfaces lead to the same network with the same metric",
    message="node {node}: {interfaces} all lead to {destination} with metric {metric}, and the kernel [[uses {only} "
    "for all of them|divides connections among these {ways} ways|takes one of them]], whichever interface "
    "NCCL or Gloo is set to use",
    remedy=(
        RemedyStep(
            explanation="give the interfaces networks of their own, or different metrics",
            where="node {node}",
            command="ip route show {destination}",
        ),
        RemedyStep(
            explanation="or let NCCL use the first one only",
            where="every node",
            command="export NCCL_SOCKET_IFNAME=={first}",
        ),
    ),
)
def twin_routes(
    net: PerNode[NetFacts], transport: PerNode[TransportFacts], world: World, case: Analysis
) -> Iterator[Hit]:
    """
    ## What it checks
    IPv4 routes to the same network with the same metric through different interfaces that are up and no bridges or
    tunnels, where NCCL's sockets would use one of them; of container interfaces (veth, macvlan) those with an
    address of a network. Interfaces for whose addresses a rule of policy routing names a table do not count. A warning
    for a job on several nodes without active InfiniBand, RoCE or EFA ports, else information. One route with several
    ways (`nexthop`) is information always: it is made on purpose.
    ## Why it matters
    The kernel chooses by its table and not by the address that a socket is bound to, unless there are rules of policy
    routing. Packets leave through another interface than their address belongs to; the peer's reverse-path filter
    drops them, or the job runs over the slower interface. As the order of the routes differs from node to node, so
    does what works. With several ways the kernel chooses one for each connection or each peer.
    ## Check by hand
    `ip route show`; `ip rule`; `ip route get PEER from ADDRESS` for each address.
    ## When it is harmless
    With policy routing by another sign than the address that packets come from; and where all ways of one route lead
    to the same switches.
    """
    rdma = case.facts(RdmaFacts)
    for node, facts in net.items():
        up = {i.name for i in facts.interfaces if i.is_up and (i.kind in _REAL or _is_inside(i))}
        used = set(transport[node].nccl.interfaces)
        routes = [r for r in facts.routes if r.interface in up and ":" not in r.destination]
        has_rdma = node in rdma and any(p.state == "ACTIVE" for p in rdma[node].ports)
        for (destination, metric), names in grouped(((r.destination, r.metric), r.interface) for r in routes).items():
            twins = list(dict.fromkeys(names))
            if len(twins) < 2 or used.isdisjoint(twins) or are_told_apart(facts, twins):
                continue
            is_shared = any(r.is_shared for r in routes if (r.destination, r.metric) == (destination, metric))
            yield Hit(
                severity=Severity.WARNING if world.num_nodes > 1 and not has_rdma and not is_shared else None,
                confidence=Confidence.POSSIBLE,
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "interfaces": ", ".join(twins),
                    "destination": destination,
                    "metric": metric,
                    "first": twins[0],
                    "only": None if is_shared else twins[0],
                    "ways": len(twins) if is_shared else None,
                },
                evidence=(
                    stated(
                        "/proc/net/route",
                        "{destination} metric {metric}: {interfaces}",
                        node_rank=node,
                        destination=destination,
                        metric=metric,
                        interfaces=", ".join(twins),
                    ),
                ),
            )


def _is_inside(interface: Interface) -> bool:
    """Whether it is a container's own: the host's end of one has no address, or one without a network."""
    addresses = (a for a in interface.addresses if ":" not in a)
    return interface.kind in _OF_CONTAINERS and any(not a.endswith("/32") for a in addresses)


MAX_ROUTE_TABLES = 16


@Rule(
    code="NET013",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.START_NAME,
    layer=Layer.PATH,
    title="Other nodes have no route to the chosen address",
    message="{library} on node {nodes} will publish {addresses}, and other nodes have no route to it",
    remedy=model.RemedyStep(
        explanation="set an interface that the other nodes can reach",
        where="node {on}",
        command="{command}",
        each="exports",
    ),
)
def unroutable_choice(
    transport: model.PerNode[model.TransportFacts], net: model.PerNode[model.NetFacts], case: Analysis
) -> Iterator[model.Hit]:
    """
    ## What it checks
    The addresses that NCCL and Gloo will publish, against the peers' own interfaces and routes. A node is named when no
    probe reached its address and a peer has no route to it, or only the default route while the node has another
    interface in a network that the peer is in. Without probes only a peer without any route counts. Where rules of
    policy routing send packets to other tables, only a probe counts that the kernel itself refused.
    ## Why it matters
    Machines often have a management, a storage and a compute network, not all of which lead everywhere. The library
    takes the first interface that fits, its peers send to it through the default gateway, and nothing arrives.
    ## Check by hand
    `ip route get ADDRESS` on a peer: does it leave by the interface you expect?
    ## When it is harmless
    When a route to that network will exist by the time the job starts.
    """
    shared = case.of(shared_addresses)
    tried = _tried(case.reach)
    has_route = _has_route(net)
    tables = _route_tables(net) if not tried else ()
    bad: dict[str, dict[int, tuple[Chosen, str, str]]] = {}
    probes: list[model.PathProbe] = []
    for item in (item for items in case.of(needed_choices).values() for item in items):
        node = item.node
        for interface, address in zip(item.choice.interfaces, item.choice.addresses, strict=False):
            if is_loopback(address) or address in shared or is_private(interface):
                continue
            paths = tried.get((node, address), [])
            lost = [p for p in paths if _is_misrouted(p, net)]
            no_table = any(n != node and not has_route(n, address, net[node]) for n in tables if node in net)
            if (lost and all(p.outcome not in {"ok", "stuck"} for p in paths)) or no_table:
                bad.setdefault(item.backend, {}).setdefault(node, (item, interface, address))
                probes += lost[:4]
    certain = bool(probes) and all(p.src in net and route_to(net[p.src], p.address) is None for p in probes)
    for _, found in sorted(bad.items(), reverse=True):
        hit = choice_hit(
            case,
            {n: chosen for n, (chosen, _, _) in found.items()},
            {
                n: said("{address}: {why}", address=address, why=say_choice(chosen.choice))
                for n, (chosen, _, address) in list(found.items())[:8]
            },
            avoid={*shared, *(address for _, _, address in found.values())},
            confidence=model.Confidence.CERTAIN if certain else model.Confidence.LIKELY,
            addresses=brief(Split.by({n: f"{address} ({name})" for n, (_, name, address) in found.items()})),
        )
        yield replace(hit, evidence=(*hit.evidence, *path_evidence(probes)))


def _tried(reach: model.Reachability | None) -> dict[tuple[int, str], list[model.PathProbe]]:
    found: dict[tuple[int, str], list[model.PathProbe]] = {}
    for p in reach.paths if reach else ():
        if p.kind == "data" and p.outcome in {"ok", "stuck", "filtered", "no_route"}:
            found.setdefault((p.dst, p.address), []).append(p)
    return found


def _is_misrouted(path: model.PathProbe, net: Mapping[int, model.NetFacts]) -> bool:
    """No route, or only the default one although another network connects the two directly."""
    if path.outcome in {"ok", "stuck"} or path.src not in net or path.dst not in net:
        return False
    if path.outcome != "no_route" and has_other_tables(net[path.src]):
        return False
    route = route_to(net[path.src], path.address)
    if route is None or route[1] > 0:
        return route is None
    used = holder(net[path.dst], path.address)
    others = [i for i in net[path.dst].interfaces if i is not used and i.is_up and not i.is_loopback]
    addresses = [a for i in others if not is_private(i.name) for a in i.bare_addresses]
    return any(other is not None and other[1] > 0 for a in addresses for other in (route_to(net[path.src], a),))


def _has_route(net: Mapping[int, model.NetFacts]) -> Callable[[int, str, model.NetFacts], bool]:
    """Whether a node has any route to an address of another one, asked once per network."""
    known: dict[tuple[int, str], bool] = {}

    def has_route(node: int, address: str, owner: model.NetFacts) -> bool:
        interface = holder(owner, address)
        networks = [str(n) for n in subnets(interface) if parse(address) in n] if interface else []
        key = (node, networks[0] if networks else address)
        if key not in known:
            known[key] = route_to(net[node], address) is not None
        return known[key]

    return has_route


def _route_tables(net: Mapping[int, model.NetFacts]) -> tuple[int, ...]:
    """One node for each of the most common routing tables, so that thousands of equal ones are asked once."""
    found: dict[object, int] = {}
    counts: Counter[object] = Counter()
    for node, facts in net.items():
        if has_other_tables(facts):
            continue
        key = tuple(sorted((r.destination, r.interface) for r in facts.routes))
        if facts.routes:
            found.setdefault(key, node)
            counts[key] += 1
    return tuple(found[key] for key, _ in counts.most_common(MAX_ROUTE_TABLES))
