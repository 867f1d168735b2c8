"""Paths between nodes on which connections fail."""

from collections.abc import Iterator, Mapping

from allready.judging.addresses import drops_out, drops_port
from allready.judging.analysis import Analysis
from allready.judging.firewall import opening_outward
from allready.judging.registry import Layer, Rule
from allready.judging.stated import evidence_of, said
from allready.judging.values import commands, listed, on_nodes
from allready.model import Confidence, Evidence, FaultClass, FirewallFacts, Hit, Reachability, RemedyStep, Severity
from allready.rules.net._paths import (
    NodePair,
    Paths,
    back,
    common_node,
    datagram_evidence,
    judge_paths,
    links_of,
    openings,
    path_evidence,
    path_hit,
    port_range,
    routes_to,
)


@Rule(
    code="NET005",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    layer=Layer.PATH,
    title="No packets pass between two nodes",
    message="no packets pass between {num_pairs} pairs of nodes ({links}) on the addresses that the job will use "
    "({addresses}), although all of these nodes reach node 0",
    remedy=(
        RemedyStep(explanation="see where packets go", where="both nodes", command="{routes}"),
        RemedyStep(
            explanation="if the job should not use these addresses, set the right interface",
            where="every node",
            command="export NCCL_SOCKET_IFNAME=IFNAME GLOO_SOCKET_IFNAME=IFNAME",
        ),
    ),
)
def no_path(reach: Reachability, case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    Pairs of nodes between which neither TCP nor a datagram gets through in any direction, on the addresses that NCCL
    and Gloo will use. One node is named when all such pairs have it in common and the others reach each other.
    ## Why it matters
    Rendezvous needs only the path to node 0 and succeeds; the first collective connects other pairs and hangs.
    ## Check by hand
    `ip route get PEER` and `ip neigh show PEER` on both nodes: FAILED or INCOMPLETE means that the next hop does not
    answer (another VLAN, an isolated bridge port, a different subnet mask).
    ## When it is harmless
    When the two never communicate directly, or the job will use another interface.
    """
    paths = case.of(judge_paths)
    if not paths.dead:
        return
    targets = sorted({p.address for p in paths.probes(paths.dead)})
    links = links_of(paths.dead)
    yield path_hit(
        case,
        paths.dead,
        common_node(links, links_of(paths.fine)),
        num_pairs=len(set(map(frozenset, links))),
        addresses=listed(targets, 4),
        routes=routes_to(targets),
        evidence=(*path_evidence(paths.probes(paths.dead)), *datagram_evidence(paths, paths.dead)),
    )


@Rule(
    code="NET004",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    layer=Layer.PATH,
    title="Packets pass in one direction only",
    message="packets are lost in one direction only: {links}; the reverse direction works",
    remedy=(
        RemedyStep(
            explanation="find what drops packets from the sender",
            where="node {where}",
            command="nft list ruleset; iptables -S; sysctl net.ipv4.conf.all.rp_filter",
        ),
        RemedyStep(explanation="then check the path between the two", where="both nodes", command="{routes}"),
    ),
)
def one_way_path(reach: Reachability, case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    Pairs of nodes between which no TCP connection is established in either direction, while datagrams arrive in one
    direction and never in the other. The direction that drops packets is named; TCP alone cannot tell it, for it needs
    both.
    ## Why it matters
    All connections between the two hang until their timeouts, and each side blames the other.
    ## Check by hand
    `tcpdump -ni any host PEER` on both nodes while one of them runs `nc -vz -w 3 PEER 45678`: packets that leave one
    side and never show on the other were dropped on the path; those that show and get no answer, in the receiver's
    firewall.
    ## When it is harmless
    When these two nodes never communicate directly, which neither NCCL nor Gloo guarantees.
    """
    paths = case.of(judge_paths)
    if not paths.one_way:
        return
    involved = {h for hop in paths.one_way for h in (hop, back(hop))}
    yield path_hit(
        case,
        paths.one_way,
        (),
        where=on_nodes(case.world, [dst for _, dst, _ in paths.one_way]),
        routes=routes_to({p.address for p in paths.probes(paths.one_way)}),
        evidence=(*datagram_evidence(paths, involved), *path_evidence(paths.probes(involved))),
    )


@Rule(
    code="NET006",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    layer=Layer.PATH,
    title="A firewall rejects connections to the data ports",
    message="a firewall rejects TCP connections on {num_links} of {num_tried} directions ({links}): a port on which "
    "this check listens refuses them",
    remedy=RemedyStep(
        explanation="let the other nodes connect to TCP ports {first}-{last}; if no filter there rejects them, one on "
        "the path does (security group, transparent proxy)",
        where="node {on}",
        command="{command}",
        each="openings",
    ),
)
def refused_path(reach: Reachability, case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    That a data port on which this check listens does not answer "connection refused", nor "no route to host" while
    other packets pass between the same two nodes. A firewall with a REJECT rule does that: `reject with tcp reset` of
    iptables and nft gives the first, firewalld's default (icmp-host-prohibited) the second.
    ## Why it matters
    NCCL and Gloo get the same answer on their own ports. NCCL retries for about a minute and then reports only
    "Connection refused" or "No route to host", as if the other rank had died.
    ## Check by hand
    On the receiving node `python -m http.server 45678`, on the sending one `nc -vz -w 3 ADDRESS 45678`; then `nft list
    ruleset | grep -i reject` or `iptables -S | grep -i reject` on the receiving node.
    ## When it is harmless
    When the receiving node ended its part of the check early; other findings then report that.
    """
    paths = case.of(judge_paths)
    if not paths.rejected:
        return
    links = links_of(paths.rejected)
    into = tuple(sorted({dst for _, dst in links}))
    reached = {dst for _, dst, _ in paths.fine}
    ports = port_range(case, into)
    yield path_hit(
        case,
        paths.rejected,
        into if reached and not reached & set(into) else (),
        first=ports[0],
        last=ports[1],
        openings=openings(case, into, ports, links),
        evidence=path_evidence(paths.probes(paths.rejected, "refused", "no_route")),
    )


@Rule(
    code="NET001",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    layer=Layer.PATH,
    title="A firewall drops connections to the data ports",
    message="a firewall drops TCP connections to random high ports on {num_links} of {num_tried} directions ({links}); "
    "other packets between these nodes pass",
    remedy=(
        RemedyStep(
            explanation="open the ports on which NCCL and Gloo listen; the kernel picks them from {first}-{last}",
            where="node {on}",
            command="{command}",
            each="openings",
        ),
        RemedyStep(
            explanation="if only a smaller range may be opened, confine the kernel to it",
            where="every node",
            command='sysctl -w net.ipv4.ip_local_port_range="LOW HIGH"',
        ),
    ),
)
def data_ports_filtered(reach: Reachability, case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    That a TCP connection from every other node to a random high port of each node is answered, on the addresses that
    NCCL and Gloo will use. Silence counts only where packets are known to pass both ways between the two nodes. A node
    is named when none of its data ports is reachable while those of others are, or when its own firewall drops the
    connections that it opens.
    ## Why it matters
    Rendezvous needs one port; NCCL and Gloo listen on ephemeral ports and exchange their numbers. With only the master
    port open the job starts, and hangs in its first collective for 30 s to 30 min.
    ## Check by hand
    On the receiver `python -m http.server 45678`, on the sender `nc -vz -w 3 ADDRESS 45678`; then `nft list ruleset`,
    `iptables -S`, `firewall-cmd --list-all` or `ufw status` on the receiver, and the security groups of the cloud.
    ## When it is harmless
    When NCCL uses only InfiniBand, no Gloo group is created, and NCCL's bootstrap port range is open.
    """
    paths, firewall = case.of(judge_paths), case.facts(FirewallFacts)
    links = links_of(paths.filtered)
    if not links:
        return
    shut = senders_shut(paths, firewall)
    nodes = shut or guilty_nodes(paths, links)
    where = nodes or tuple(sorted({dst for _, dst in links}))
    ports = port_range(case, where)
    # The rules of a node that seems closed were read and drop nothing: the filter may lie on the path.
    elsewhere = any((known := firewall.get(n)) is not None and not known.drops for n in where)
    yield path_hit(
        case,
        paths.filtered,
        nodes,
        Confidence.LIKELY if elsewhere else None,
        first=ports[0],
        last=ports[1],
        openings=commands(case.world, opening_outward(shut, firewall, ports))
        if shut
        else openings(case, where, ports, links),
        evidence=(
            *_drop_rules(where, firewall, outward=bool(shut)),
            *path_evidence(paths.probes(paths.filtered, "filtered")),
        ),
    )


def senders_shut(paths: Paths, firewall: Mapping[int, FirewallFacts]) -> tuple[int, ...]:
    """Senders whose own filter drops every connection that got no answer, while the receivers' filters drop none."""
    unanswered = paths.probes(paths.filtered, "filtered")
    if any(not drops_out(firewall.get(p.src), p.port) or drops_port(firewall.get(p.dst), p.port) for p in unanswered):
        return ()
    return tuple(sorted({p.src for p in unanswered}))


def guilty_nodes(paths: Paths, links: tuple[NodePair, ...]) -> tuple[int, ...]:
    """The nodes whose own filter explains every silent direction; empty when all nodes are like that, or none is.

    It takes a node with working data ports to tell the two apart.  One node that reaches no other, while all others
    reach each other, may be unable to send.
    """
    fine = links_of(paths.fine)
    closed = {dst for _, dst in links} & paths.closed
    if fine and all(dst in closed for _, dst in links) and any(dst not in closed for _, dst in fine):
        return tuple(sorted(closed))
    sources = {src for src, _ in links}
    if len(sources) == 1 and len(links) > 1 and not any(src in sources for src, _ in fine):
        return tuple(sources)
    return ()


def _drop_rules(where: tuple[int, ...], firewall: Mapping[int, FirewallFacts], *, outward: bool) -> Iterator[Evidence]:
    for node in where[:4]:
        if (facts := firewall.get(node)) is None:
            continue
        source = said("packet filter of node {node} ({tool})", node=node, tool=facts.tool)
        for rule in [r for r in facts.drops if r.is_outbound or not outward][:3]:
            yield evidence_of(source, rule.text, node_rank=node)


@Rule(
    code="NET007",
    severity=Severity.ERROR,
    fault_class=FaultClass.START_PATH,
    layer=Layer.PATH,
    title="Ports of --port-range are unreachable",
    message="ports of --port-range ({ports}) accept no connection on {num_links} of {num_tried} directions ({links}); "
    "random high ports of the same nodes do",
    remedy=RemedyStep(explanation="open the port range", where="node {on}", command="{command}", each="openings"),
)
def range_port_filtered(reach: Reachability, case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    That the tried ports of `--port-range` are reachable in every direction. Directions whose random high ports are
    closed too are left to NET001 and NET006.
    ## Why it matters
    A job that is confined to a port range (for a firewall, or in a container) relies on all of it: the first connection
    to a closed port of the range hangs.
    ## Check by hand
    On the receiving node `python -m http.server PORT`, on the sending one `nc -vz -w 3 ADDRESS PORT`.
    ## When it is harmless
    When the job does not use these ports after all.
    """
    paths = case.of(judge_paths)
    tried = {h: found for h, probes in paths.others.items() if (found := [p for p in probes if p.kind == "range"])}
    bad = {
        hop: failed
        for hop, probes in tried.items()
        if hop in paths.fine and (failed := [p for p in probes if p.outcome in {"filtered", "refused", "no_route"}])
    }
    if not bad:
        return
    links = links_of(bad)
    into = tuple(sorted({dst for _, dst in links}))
    reached = {dst for _, dst, _ in tried.keys() - bad.keys()}
    failed = [p for hop in sorted(bad) for p in bad[hop]]
    ports = sorted({p.port for p in failed})
    yield path_hit(
        case,
        bad,
        into if reached and not reached & set(into) else (),
        Confidence.CERTAIN,
        num_tried=len(links_of(tried)),
        ports=listed(list(map(str, ports)), 8, ","),
        openings=openings(case, into, (ports[0], ports[-1]), links),
        evidence=path_evidence(failed),
    )
