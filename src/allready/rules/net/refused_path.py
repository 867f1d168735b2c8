from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, Reachability, RemedyStep, Severity
from allready.rules.net._paths import judge_paths, links_of, openings, path_evidence, path_hit, port_range


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
