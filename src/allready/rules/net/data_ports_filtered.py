from collections.abc import Iterator, Mapping

from allready.judging.addresses import drops_out, drops_port
from allready.judging.analysis import Analysis
from allready.judging.firewall import opening_outward
from allready.judging.registry import Layer, Rule
from allready.judging.stated import evidence_of, said
from allready.judging.values import commands
from allready.model import Confidence, Evidence, FaultClass, FirewallFacts, Hit, Reachability, RemedyStep, Severity
from allready.rules.net._paths import Link, Paths, judge_paths, links_of, openings, path_evidence, path_hit, port_range


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


def guilty_nodes(paths: Paths, links: tuple[Link, ...]) -> tuple[int, ...]:
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
