"""NET013."""

from collections import Counter
from collections.abc import Iterator, Mapping

from allready.judging.layers import Layer
from allready.judging.majority import Split
from allready.judging.node_split import brief, exports
from allready.judging.registry import Rule
from allready.judging.values import commands, on_nodes
from allready.model import (
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    GpuFacts,
    Hit,
    HostFacts,
    LaunchFacts,
    NetFacts,
    PathProbe,
    PerNode,
    Reachability,
    RemedyStep,
    RollCall,
    Severity,
    TransportFacts,
    World,
)
from allready.rules.net._interfaces import (
    Chosen,
    good_interfaces,
    holder,
    is_loopback,
    is_private,
    needed_choices,
    parse_address,
    shared_addresses,
    subnets,
    way_to,
)
from allready.rules.net._paths import path_evidence

MAX_ROUTE_TABLES = 16


@Rule(
    code="NET013",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_NAME,
    since="0.1",
    layer=Layer.PATH,
    title="The chosen address lies in a network that peers have no way to",
    message="{library} on node {nodes} will be reached at {addresses}, and other nodes have no way there",
    remedy=RemedyStep(
        explanation="name an interface that the other nodes can reach",
        where="node {on}",
        command="{command}",
        each="exports",
    ),
)
def unroutable_choice(
    transport: PerNode[TransportFacts],
    net: PerNode[NetFacts],
    world: World,
    host: PerNode[HostFacts] | None = None,
    launch: PerNode[LaunchFacts] | None = None,
    gpu: PerNode[GpuFacts] | None = None,
    roll: RollCall | None = None,
    reach: Reachability | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    The addresses that NCCL and Gloo will give to peers against the peers' own interfaces and routes. A node is named
    when nobody got through to its address and a peer has no route to it, or only the default route while the node has
    another interface in a network that the peer is in. Without probes only a peer without any route counts.
    ## Why it matters
    Machines often have a management, a storage and a compute network, not all of which lead everywhere. The library
    takes the first interface that fits, its peers send to it by way of the default gateway, and nothing arrives.
    ## Check by hand
    `ip route get ADDRESS` on a peer: does it leave by the interface you expect?
    ## When it is harmless
    When a route to that network will be there by the time the job starts.
    """
    chosen = needed_choices(transport, launch, gpu)
    shared = shared_addresses(chosen, net, host)
    tried = _tried(reach)
    routes = _Routes(net)
    tables = _route_tables(net) if not tried else ()
    bad: dict[str, dict[int, tuple[Chosen, str, str]]] = {}
    seen: list[PathProbe] = []
    for node, items in chosen.items():
        for item in items:
            for interface, address in zip(item.choice.interfaces, item.choice.addresses, strict=False):
                if is_loopback(address) or address in shared or is_private(interface):
                    continue
                paths = tried.get((node, address), [])
                lost = [p for p in paths if _has_no_way(p, net)]
                no_table = any(n != node and routes.lacks(n, address, net[node]) for n in tables if node in net)
                if (lost and all(p.outcome not in {"ok", "stuck"} for p in paths)) or no_table:
                    bad.setdefault(item.backend, {}).setdefault(node, (item, interface, address))
                    seen += lost[:4]
    for library, found in sorted(bad.items(), reverse=True):
        nodes = tuple(sorted(found))
        variable = found[nodes[0]][0].choice.variable
        better = good_interfaces(nodes, net, roll, avoid={a for _, _, a in found.values()} | set(shared))
        yield Hit(
            confidence=Confidence.CERTAIN if seen and all(_no_route(p, net) for p in seen) else Confidence.LIKELY,
            culprits=Culprits(
                nodes=nodes, variables=(variable,) if any(c.choice.pattern for c, _, _ in found.values()) else ()
            ),
            values={
                "library": library,
                "nodes": on_nodes(world, nodes),
                "addresses": brief(Split.by({n: f"{a} ({i})" for n, (_, i, a) in found.items()})),
                "exports": commands(world, exports(variable, better, nodes)),
            },
            evidence=(
                *(
                    Evidence(source=c.choice.variable, text=f"{a}: {c.choice.reason}", node_rank=n)
                    for n, (c, _, a) in list(found.items())[:8]
                ),
                *path_evidence(seen),
            ),
        )


def _tried(reach: Reachability | None) -> dict[tuple[int, str], list[PathProbe]]:
    found: dict[tuple[int, str], list[PathProbe]] = {}
    for p in reach.paths if reach else ():
        if p.kind == "data" and p.outcome in {"ok", "stuck", "filtered", "no_route"}:
            found.setdefault((p.dst, p.address), []).append(p)
    return found


def _no_route(path: PathProbe, net: Mapping[int, NetFacts]) -> bool:
    return path.src in net and way_to(net[path.src], path.address) is None


def _has_no_way(path: PathProbe, net: Mapping[int, NetFacts]) -> bool:
    """No route, or only the default one although another network connects the two directly."""
    if path.outcome in {"ok", "stuck"} or path.src not in net or path.dst not in net:
        return False
    way = way_to(net[path.src], path.address)
    if way is None:
        return True
    if way[1] > 0:
        return False
    used = holder(net[path.dst], path.address)
    others = [i for i in net[path.dst].interfaces if i is not used and i.is_up and not i.is_loopback]
    addresses = [a.partition("/")[0] for i in others if not is_private(i.name) for a in i.addresses]
    return any(other is not None and other[1] > 0 for a in addresses for other in (way_to(net[path.src], a),))


class _Routes:
    """Whether a node has any way to an address, asked once per network."""

    def __init__(self, net: Mapping[int, NetFacts]) -> None:
        self._net = net
        self._known: dict[tuple[int, str], bool] = {}

    def lacks(self, node: int, address: str, owner: NetFacts) -> bool:
        interface = holder(owner, address)
        networks = [str(n) for n in subnets(interface) if parse_address(address) in n] if interface else []
        key = (node, networks[0] if networks else address)
        if key not in self._known:
            self._known[key] = way_to(self._net[node], address) is None
        return self._known[key]


def _route_tables(net: Mapping[int, NetFacts]) -> tuple[int, ...]:
    """One node for each of the most common routing tables, so that thousands of equal ones are asked once."""
    found: dict[object, int] = {}
    counts: Counter[object] = Counter()
    for node, facts in net.items():
        key = tuple(sorted((r.destination, r.interface) for r in facts.routes))
        if facts.routes:
            found.setdefault(key, node)
            counts[key] += 1
    return tuple(found[key] for key, _ in counts.most_common(MAX_ROUTE_TABLES))
