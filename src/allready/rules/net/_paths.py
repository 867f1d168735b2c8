"""What the probes prove about each direction between two nodes: one analysis, which all rules about paths share.

TCP needs both directions, so silence alone does not tell which one drops packets.  Datagrams go one way only and do;
and any answer on another port of the same two nodes proves that packets pass both ways, which leaves a port filter.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from allready import model
from allready.judging.analysis import Analysis
from allready.judging.firewall import MAX_PEERS, opening
from allready.judging.stated import said, stated
from allready.judging.values import MAX_EVIDENCE, commands, listed
from allready.model.fill import Several, named_by, words_of
from allready.rules.net._interfaces import holder, parse_interface
from allready.rules.net._losses import silent_by_chance

NodePair = tuple[int, int]
Hop = tuple[int, int, int]
"""(src, dst, plane): nodes may have chosen several addresses, each in a network of its own, the plane."""

MAX_LINKS = 256
MAX_ARROWS = 6

_ANSWERS = {"ok", "stuck", "refused"}
_LINUX_PORT_RANGE = (32768, 60999)


IPERF = (
    model.RemedyStep(
        explanation="measure the link: start the server on one node", where="node {receiver}", command="iperf3 -s"
    ),
    model.RemedyStep(explanation="and the client on the other", where="node {sender}", command="iperf3 -c {address}"),
)


def back(hop: Hop) -> Hop:
    """The reverse direction."""
    return hop[1], hop[0], hop[2]


class Paths(Struct):
    """Every direction that was tried, by its state.  A direction is in at most one of the sets but `certain`."""

    data: dict[Hop, list[model.PathProbe]] = {}
    others: dict[Hop, list[model.PathProbe]] = {}  # master port and port range
    datagrams: dict[Hop, model.DatagramProbe] = {}
    filtered: set[Hop] = set()  # silence on data ports, while packets do pass both ways
    rejected: set[Hop] = set()  # refused, although our listener was there
    one_way: set[Hop] = set()  # this direction drops everything, the reverse does not
    dead: set[Hop] = set()  # nothing passes between the two, in either direction
    fine: set[Hop] = set()  # connected at every port
    certain: set[Hop] = set()  # of those above: proven, not only likely
    closed: set[int] = set()  # nodes that no data connection reaches

    def probes(self, hops: Iterable[Hop], *outcomes: str) -> list[model.PathProbe]:
        """The data probes of these directions, with one of these outcomes where any are named."""
        return [p for hop in sorted(hops) for p in self.data.get(hop, ()) if not outcomes or p.outcome in outcomes]


def judge_paths(case: Analysis) -> Paths:
    """Classify every direction.  Nodes whose connection to node 0 broke are left out: that is another fault."""
    found = Paths()
    reach, roll = case.reach, case.roll
    if reach is None:
        return found
    lost = set(roll.lost) if roll else set()
    unreliable = case.of(silent_by_chance)
    planes = _planes(reach)
    for path in reach.paths:
        if path.outcome in {"not_run", "error"} or path.src == path.dst or lost & {path.src, path.dst}:
            continue
        if path.outcome in {"filtered", "stuck"} and unreliable & {path.src, path.dst}:
            continue  # proves nothing where packets are lost at random
        plane = planes.get((path.dst, path.address))
        if plane is not None:
            side = found.data if path.kind == "data" else found.others
            side.setdefault((path.src, path.dst, plane), []).append(path)
    for d in reach.datagrams:
        plane = planes.get((d.dst, d.address), 0)
        if plane is not None and not lost & {d.src, d.dst}:
            found.datagrams[d.src, d.dst, plane] = d
    _classify(found, {c.node_rank: c.address for c in roll.claims if c.refused is None} if roll else {})
    return found


def _planes(reach: model.Reachability) -> dict[tuple[int, str], int | None]:
    """(node, address) of the data ports -> its plane: the first address of every node makes one plane, the second the
    next, where all nodes have equally many.  None for an address that several nodes have: a probe may have reached any
    of them, and proves nothing."""
    names: dict[int, dict[str, str]] = {}
    owners: dict[str, set[int]] = {}
    for path in reach.paths:
        if path.kind != "master":  # an address that perhaps only the store uses
            names.setdefault(path.dst, {}).setdefault(path.address, path.interface or "")
            owners.setdefault(path.address, set()).add(path.dst)
    is_regular = len({len(addresses) for addresses in names.values()}) == 1
    return {
        (node, address): None if len(owners[address]) > 1 else plane if is_regular else 0
        for node, addresses in names.items()
        for plane, (_, address) in enumerate(sorted((name, address) for address, name in addresses.items()))
    }


def _classify(found: Paths, claimed: dict[int, str]) -> None:
    """Sort the directions into the sets of `found`; `claimed`: node rank -> the address by which node 0 sees it."""
    state = {hop: _state(paths) for hop, paths in found.data.items()}
    found.fine = {hop for hop, outcome in state.items() if outcome == "ok"}
    silent_pairs = [
        hop
        for hop in state
        if (hop[0] < hop[1] or back(hop) not in state) and _is_silent_pair(found, state, hop, claimed)
    ]
    # Nodes into which every data direction is silent, at least one of them for a filter without doubt.
    tried = Counter(dst for _, dst, _ in state)
    silent = Counter(dst for (_, dst, _), outcome in state.items() if outcome == "silent")
    found.closed = {dst for _, dst, _ in found.filtered if silent[dst] == tried[dst]}
    for hop in silent_pairs:
        both_closed = {hop[0], hop[1]} <= found.closed  # their firewalls explain it
        (found.filtered if both_closed else found.dead).update({hop, back(hop)} & state.keys())


def _is_silent_pair(found: Paths, state: dict[Hop, str], hop: Hop, claimed: dict[int, str]) -> bool:
    """Whether nothing is known to pass between two nodes; what is known of a pair goes into its set."""
    states = {h: state[h] for h in (hop, back(hop)) if h in state}
    refused = {h for h, outcome in states.items() if outcome == "refused"}
    found.rejected |= refused
    found.certain |= refused
    failed = {h for h, outcome in states.items() if outcome in {"silent", "no_route"}}
    if not failed:
        return False
    there, again = _arrive(found, hop), _arrive(found, back(hop))
    if (there and again) or any(_answers(found, h, claimed) for h in (hop, back(hop))):
        filtered = {h for h in failed if states[h] == "silent"}
        found.rejected |= failed - filtered
        found.filtered |= filtered
        found.certain |= {h for h in filtered if all(p.outcome == "filtered" for p in found.data[h])}
        return False
    if there is not None and again is not None and there != again:
        broken = hop if again else back(hop)
        found.one_way.add(broken)
        if any(h[1] == broken[1] and _arrive(found, h) for h in found.datagrams.keys() - {broken}):
            found.certain.add(broken)
        return False
    if there is False and again is False:
        found.certain |= failed
    return True


def _answers(found: Paths, hop: Hop, claimed: dict[int, str]) -> bool:
    """Whether TCP is known to have passed between these two nodes."""
    data = found.data.get(hop, [])
    if any(p.outcome in _ANSWERS for p in (*data, *found.others.get(hop, ()))):
        return True
    # The check's own connection to node 0 runs over this address, and it works.
    if hop[0] == 0 and any(p.address == claimed.get(hop[1]) for p in data):
        return True
    return hop[1] == 0 and any(p.src_address and p.src_address == claimed.get(hop[0]) for p in data)


def _arrive(found: Paths, hop: Hop) -> bool | None:
    """Whether any datagram arrived; None when none was sent."""
    probe = found.datagrams.get(hop)
    if probe is None or not set(probe.sent_bytes) - set(probe.too_big_bytes):
        return None
    return bool(probe.received_bytes)


def _state(paths: list[model.PathProbe]) -> str:
    outcomes = {p.outcome for p in paths}
    for outcome, state in (("filtered", "silent"), ("refused", "refused"), ("no_route", "no_route")):
        if outcome in outcomes:
            return state
    return "ok"


def links_of(hops: Iterable[Hop]) -> tuple[NodePair, ...]:
    """Directions without their planes, each once, sorted."""
    return tuple(sorted({(src, dst) for src, dst, _ in hops}))


def arrows(links: Iterable[NodePair], world: model.World) -> str:
    """`1 (gpu01) -> 0 (gpu00), …`: beyond a few only how many are left."""
    each = [f"{world.label(a)} -> {world.label(b)}" for a, b in links]
    text = listed(each, MAX_ARROWS)
    return Several(text) if len(each) > 1 else text


def accused(nodes: Sequence[int], link: NodePair, world: model.World) -> str:
    """`node 1 (gpu01), 2 (gpu02)`; where no node explains it, the worst link."""
    if not nodes:
        return named_by(said("link {link}", link=arrows([link], world)))
    return named_by(said("node {node}", node=world.labels(list(nodes))), is_several=len(nodes) > 1)


def common_node(bad: Iterable[NodePair], fine: Iterable[NodePair]) -> tuple[int, ...]:
    """The one node that all bad directions touch, with two peers or more, while the others reach each other."""
    bad = set(bad)
    touched = {n for link in bad for n in link}
    shared = set.intersection(*map(set, bad)) if bad else set()
    if len(shared) != 1 or len(touched) < 3:
        return ()
    [node] = shared
    elsewhere = {n for link in fine if node not in link for n in link}
    spared = any(node in link for link in fine)  # then it is not the node as such
    return (node,) if (touched - {node}) & elsewhere and not spared else ()


def path_hit(
    case: Analysis,
    hops: Iterable[Hop],
    nodes: tuple[int, ...],
    confidence: model.Confidence | None = None,
    evidence: tuple[model.Evidence, ...] = (),
    **values: object,
) -> model.Hit:
    """The hit of a rule about directions.

    Args:
        case: what is judged.
        hops: the bad directions.
        nodes: the nodes at fault; without any, the directions are named alone.
        confidence: by default certain where all directions are proven, else likely.
        evidence: of the rule.
        values: of the message, besides num_links, num_tried and links.
    """
    paths, hops = case.of(judge_paths), set(hops)
    links = links_of(hops)
    return model.Hit(
        culprits=model.Culprits(nodes=nodes, links=links[:MAX_LINKS]),
        confidence=confidence or (model.Confidence.CERTAIN if hops <= paths.certain else model.Confidence.LIKELY),
        values={
            "num_links": len(links),
            "num_tried": len(links_of(paths.data)),
            "links": arrows(links, case.world),
            **values,
        },
        evidence=evidence,
    )


def routes_to(addresses: Iterable[str]) -> str:
    """The command that prints the routes to the first of them."""
    return "; ".join(f"ip route get {shlex.quote(a)}" for a in sorted(addresses)[:2]) or "ip route get ADDRESS"


def port_range(case: Analysis, nodes: Iterable[int]) -> tuple[int, int]:
    """The widest range from which these nodes' kernels pick ports."""
    net = case.facts(model.NetFacts)
    ranges = [r for n in nodes if n in net and (r := net[n].local_port_range)]
    return (min(r[0] for r in ranges), max(r[1] for r in ranges)) if ranges else _LINUX_PORT_RANGE


def openings(
    case: Analysis, into: Iterable[int], ports: tuple[int, int], links: Iterable[NodePair]
) -> tuple[dict[str, str | None], ...]:
    """The commands that open `ports` of the nodes `into` to the senders of `links`, for a remedy's step."""
    return commands(case.world, opening(into, case.facts(model.FirewallFacts), ports, _senders(case, links)))


def _senders(case: Analysis, links: Iterable[NodePair]) -> list[str]:
    """Addresses from which `links` come; of many of them, their networks.

    A connection that failed has no source address, but the sender's own listeners have the address of the node.
    """
    sources = {src for src, _ in links}
    addresses: dict[str, int] = {}
    for hop, paths in case.of(judge_paths).data.items():
        if hop[0] in sources:
            addresses |= {p.src_address: hop[0] for p in paths if p.src_address}
        if hop[1] in sources:
            addresses |= {p.address: hop[1] for p in paths}
    if len(addresses) <= MAX_PEERS:
        return sorted(addresses)
    net = case.facts(model.NetFacts)
    return sorted({_network(address, net.get(node)) for address, node in addresses.items()})


def _network(address: str, net: model.NetFacts | None) -> str:
    interface = holder(net, address)
    own = map(parse_interface, interface.addresses) if interface is not None else ()
    return next((str(p.network) for p in own if p is not None and str(p.ip) == address), address)


def path_evidence(paths: Iterable[model.PathProbe]) -> tuple[model.Evidence, ...]:
    """The probes with their outcomes."""
    found = []
    for p in list(paths)[:MAX_EVIDENCE]:
        source = f"{p.src_address} -> " if p.src_address else ""  # an attempt without an answer has no address
        found.append(
            stated(
                said("TCP probe ({of}) {src} -> {dst}", of=p.kind, src=p.src, dst=p.dst),
                "{path} port {port}: {outcome} after {seconds} s[[, passed {passed} B]][[, stuck at {stuck} B]]"
                "[[: {detail}]]",
                node_rank=p.src,
                path=f"{source}{p.address}",
                port=p.port,
                outcome=p.outcome,
                seconds=f"{p.duration_s:.1f}",
                passed=p.passed_bytes[-1] if p.passed_bytes else None,
                stuck=p.stuck_bytes,
                detail=words_of(p, "detail") or None,
            )
        )
    return tuple(found)


def datagram_evidence(paths: Paths, hops: Iterable[Hop]) -> tuple[model.Evidence, ...]:
    """Which datagrams of these directions arrived."""
    return probe_evidence(paths.datagrams[h] for h in sorted(hops) if h in paths.datagrams)


def probe_evidence(probes: Iterable[model.DatagramProbe]) -> tuple[model.Evidence, ...]:
    """Which datagrams arrived."""
    return tuple(
        stated(
            f"datagrams {d.src} -> {d.dst}",
            "sent {sent} B, received {received} B",
            node_rank=d.dst,
            sent=_sizes(d.sent_bytes),
            received=_sizes(d.received_bytes),
        )
        for d in list(probes)[:MAX_EVIDENCE]
    )


def _sizes(sizes: Iterable[int]) -> str:
    return ",".join(map(str, sorted(sizes))) or "-"
