"""NET006."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.judging.values import commands
from allready.model import (
    Confidence,
    Culprits,
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
from allready.rules._firewall import opening
from allready.rules.net._paths import MAX_LINKS, arrows, judge_paths, links_of, path_evidence
from allready.rules.net.data_ports_filtered import port_range, senders


@Rule(
    code="NET006",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    since="0.1",
    layer=Layer.PATH,
    title="A firewall rejects connections to the data ports",
    message="connections to a port on which this check listens are rejected on {num_links} of {num_tried} "
    "directions ({links}): a packet filter answers in the listener's place",
    remedy=RemedyStep(
        explanation="let the other nodes connect to TCP ports {first}-{last}; if no filter there rejects them, "
        "one on the way does (security group, transparent proxy)",
        where="node {on}",
        command="{command}",
        each="openings",
    ),
)
def refused_path(
    reach: Reachability,
    world: World,
    roll: RollCall | None = None,
    firewall: PerNode[FirewallFacts] | None = None,
    net: PerNode[NetFacts] | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    That a data port on which this very check listens does not answer "connection refused", nor "no route to host"
    while other packets pass between the same two nodes. A filter with a REJECT rule does that: iptables' and nft's
    `reject with tcp reset` give the first, firewalld's default (icmp-host-prohibited) gives the second.
    ## Why it matters
    NCCL and Gloo will meet the same answer on their own ports. NCCL retries for about a minute and then says only
    "Connection refused" or "No route to host", which looks as if the other rank had died.
    ## Check by hand
    On the receiving node `python -m http.server 45678`, on the sending one `nc -vz -w 3 ADDRESS 45678`; then `nft
    list ruleset | grep -i reject` or `iptables -S | grep -i reject` on the receiving node.
    ## When it is harmless
    When the receiving node ended its part of the check early; then other findings say so.
    """
    judged = judge_paths(reach, roll)
    links = links_of(judged.rejected)
    if not links:
        return
    into = tuple(sorted({dst for _, dst in links}))
    reached = {dst for _, dst in links_of(judged.fine)}
    nodes = into if reached and not reached & set(into) else ()
    ports = port_range(into, net)
    yield Hit(
        culprits=Culprits(nodes=nodes, links=links[:MAX_LINKS]),
        confidence=Confidence.CERTAIN if judged.rejected <= judged.certain else Confidence.LIKELY,
        values={
            "num_links": len(links),
            "num_tried": len(links_of(judged.data)),
            "links": arrows(links, world),
            "first": ports[0],
            "last": ports[1],
            "openings": commands(world, opening(into, firewall, ports, senders(links, judged, net))),
        },
        evidence=path_evidence(
            p for hop in sorted(judged.rejected) for p in judged.data[hop] if p.outcome in {"refused", "no_route"}
        ),
    )
