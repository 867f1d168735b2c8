"""NET001."""

from collections.abc import Iterable, Iterator, Mapping

from allready.judging.addresses import drops_out, drops_port
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.judging.values import commands
from allready.model import (
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    FirewallFacts,
    Hit,
    NetFacts,
    PerNode,
    Reachability,
    RemedyStep,
    RollCall,
    Severity,
    World,
)
from allready.rules._firewall import MAX_PEERS, opening, opening_outward
from allready.rules.net._interfaces import holder, parse_interface
from allready.rules.net._paths import MAX_LINKS, Judged, Link, arrows, judge_paths, links_of, path_evidence

LINUX_PORT_RANGE = (32768, 60999)


@Rule(
    code="NET001",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    since="0.1",
    layer=Layer.PATH,
    title="A firewall swallows connections to the data ports",
    message="connections to random high ports get no answer on {num_links} of {num_tried} directions ({links}),"
    " although these nodes do reach each other: a packet filter drops them",
    remedy=(
        RemedyStep(
            explanation="open the ports on which NCCL and Gloo listen, which the kernel picks from {first}-{last}",
            where="node {on}",
            command="{command}",
            each="openings",
        ),
        RemedyStep(
            explanation="where only a smaller range may be opened, confine the kernel to it",
            where="every node",
            command='sysctl -w net.ipv4.ip_local_port_range="LOW HIGH"',
        ),
    ),
)
def data_ports_filtered(
    reach: Reachability,
    world: World,
    roll: RollCall | None = None,
    firewall: PerNode[FirewallFacts] | None = None,
    net: PerNode[NetFacts] | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    That a TCP connection to a random high port of every node is answered, from every other node, on the addresses
    that NCCL and Gloo will use. Silence counts only where packets are known to pass both ways between the two nodes:
    the master port or another port answers, the check's own connection runs over that address, or datagrams arrive. A
    node is named when nothing gets in to its data ports while those of others can be reached, or when its own filter,
    as far as it may be read, lets none of the connections out.
    ## Why it matters
    Rendezvous needs one port, NCCL and Gloo need many: they listen on ephemeral ports and exchange the numbers. With
    only the master port open the job starts, and then hangs in its first collective for 30 s to 30 min.
    ## Check by hand
    On the receiving node `python -m http.server 45678`, on the sending one `nc -vz -w 3 ADDRESS 45678`; then look at
    `nft list ruleset`, `iptables -S`, `firewall-cmd --list-all` or `ufw status` on the receiving node, and at the
    security groups of the cloud.
    ## When it is harmless
    When the job uses only InfiniBand for NCCL, without Gloo, and its bootstrap port range is open.
    """
    judged = judge_paths(reach, roll)
    links = links_of(judged.filtered)
    if not links:
        return
    shut = senders_shut(judged, firewall)
    nodes = shut or guilty_nodes(judged, links)
    where = nodes or tuple(sorted({dst for _, dst in links}))
    first, last = port_range(where, net)
    certain = judged.filtered <= judged.certain
    yield Hit(
        culprits=Culprits(nodes=nodes, links=links[:MAX_LINKS]),
        confidence=Confidence.CERTAIN if certain and not elsewhere(where, firewall) else Confidence.LIKELY,
        values={
            "num_links": len(links),
            "num_tried": len(links_of(judged.data)),
            "links": arrows(links, world),
            "first": first,
            "last": last,
            "openings": commands(
                world,
                opening_outward(shut, firewall or {}, (first, last))
                if shut
                else opening(where, firewall, (first, last), senders(links, judged, net)),
            ),
        },
        evidence=(
            *_rules_seen(where, firewall, outward=bool(shut)),
            *path_evidence(p for hop in sorted(judged.filtered) for p in judged.data[hop] if p.outcome == "filtered"),
        ),
    )


def elsewhere(where: Iterable[int], firewall: Mapping[int, FirewallFacts] | None) -> bool:
    """Whether the rules of a node that seems closed were read and drop nothing: the filter may lie on the way."""
    return any((known := (firewall or {}).get(n)) is not None and not known.drops for n in where)


def senders_shut(judged: Judged, firewall: Mapping[int, FirewallFacts] | None) -> tuple[int, ...]:
    """Senders whose own filter drops every connection that got no answer, while the receivers' filters drop none."""
    unanswered = [p for hop in judged.filtered for p in judged.data[hop] if p.outcome == "filtered"]
    known = firewall or {}
    if not all(drops_out(known.get(p.src), p.port) and not drops_port(known.get(p.dst), p.port) for p in unanswered):
        return ()
    return tuple(sorted({p.src for p in unanswered}))


def guilty_nodes(judged: Judged, links: tuple[Link, ...]) -> tuple[int, ...]:
    """The nodes whose own filter explains every silent direction; empty when all nodes are like that, or none is.

    It takes a node with working data ports to tell the two apart.  One node that reaches nobody, while all others
    reach each other, may not send.
    """
    fine = links_of(judged.fine)
    closed = {dst for _, dst in links} & judged.closed
    if fine and all(dst in closed for _, dst in links) and any(dst not in closed for _, dst in fine):
        return tuple(sorted(closed))
    sources = {src for src, _ in links}
    if len(sources) == 1 and len(links) > 1 and not any(src in sources for src, _ in fine):
        return tuple(sources)
    return ()


def port_range(where: Iterable[int], net: Mapping[int, NetFacts] | None) -> tuple[int, int]:
    """The widest range from which these nodes' kernels pick ports."""
    ranges = [f.local_port_range for n in where if net and (f := net.get(n)) and f.local_port_range]
    return (min(r[0] for r in ranges), max(r[1] for r in ranges)) if ranges else LINUX_PORT_RANGE


def senders(links: tuple[Link, ...], judged: Judged, net: Mapping[int, NetFacts] | None) -> list[str]:
    """Addresses from which `links` come, to be let in; with many of them, their networks.

    A connection that failed does not tell its source, but the sender's own listeners tell where it lives.
    """
    sources = {src for src, _ in links}
    addresses: dict[str, int] = {}
    for hop, paths in judged.data.items():
        if hop[0] in sources:
            addresses |= {p.src_address: hop[0] for p in paths if p.src_address}
        if hop[1] in sources:
            addresses |= {p.address: hop[1] for p in paths}
    if len(addresses) <= MAX_PEERS or net is None:
        return sorted(addresses)
    return sorted({_network(address, net[node]) if node in net else address for address, node in addresses.items()})


def _network(address: str, net: NetFacts) -> str:
    interface = holder(net, address)
    for text in interface.addresses if interface else ():
        parsed = parse_interface(text)
        if parsed is not None and str(parsed.ip) == address:
            return str(parsed.network)
    return address


def _rules_seen(
    where: tuple[int, ...], firewall: Mapping[int, FirewallFacts] | None, *, outward: bool
) -> Iterator[Evidence]:
    for node in where[:4]:
        facts = firewall.get(node) if firewall else None
        for rule in [r for r in facts.drops if r.is_outbound or not outward][:3] if facts else ():
            yield Evidence(source=f"packet filter of node {node} ({facts.tool})", text=rule.text, node_rank=node)  # type: ignore[union-attr]
