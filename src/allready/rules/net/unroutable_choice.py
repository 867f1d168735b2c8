from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from msgspec.structs import replace

from allready import model
from allready.judging.addresses import is_loopback, is_private, parse
from allready.judging.analysis import Analysis
from allready.judging.majority import Split
from allready.judging.node_split import brief
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.rules.net._interfaces import (
    Chosen,
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
    addresses = [a.partition("/")[0] for i in others if not is_private(i.name) for a in i.addresses]
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
