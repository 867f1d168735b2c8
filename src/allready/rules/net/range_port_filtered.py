"""NET007."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.judging.values import commands
from allready.model import (
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
from allready.rules.net.data_ports_filtered import senders


@Rule(
    code="NET007",
    severity=Severity.ERROR,
    fault_class=FaultClass.START_PATH,
    since="0.1",
    layer=Layer.PATH,
    title="Ports of --port-range cannot be reached",
    message="ports of --port-range get no connection on {num_links} of {num_tried} directions ({links}), "
    "although random high ports of the same nodes do; tried in vain: {ports}",
    remedy=RemedyStep(
        explanation="open the port range",
        where="node {on}",
        command="{command}",
        each="openings",
    ),
)
def range_port_filtered(
    reach: Reachability,
    world: World,
    roll: RollCall | None = None,
    firewall: PerNode[FirewallFacts] | None = None,
    net: PerNode[NetFacts] | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    That the tried ports of `--port-range` can be reached in every direction. Directions whose random high ports are
    closed too belong to another finding (NET001, NET006).
    ## Why it matters
    Who confines a job to a port range (for a firewall, or in a container) relies on all of it: the first connection
    that gets a closed port of the range hangs.
    ## Check by hand
    On the receiving node `python -m http.server PORT`, on the sending one `nc -vz -w 3 ADDRESS PORT`.
    ## When it is harmless
    When the job does not use these ports after all.
    """
    judged = judge_paths(reach, roll)
    bad, tried = {}, set()
    for hop, paths in judged.others.items():
        of_range = [p for p in paths if p.kind == "range"]
        if not of_range:
            continue
        tried.add(hop)
        failed = [p for p in of_range if p.outcome in {"filtered", "refused", "no_route"}]
        if failed and hop in judged.fine:
            bad[hop] = failed
    links = links_of(bad)
    if not links:
        return
    into = tuple(sorted({dst for _, dst in links}))
    reached = {dst for _, dst in links_of(tried - set(bad))}
    ports = sorted({p.port for failed in bad.values() for p in failed})
    yield Hit(
        culprits=Culprits(nodes=into if reached and not reached & set(into) else (), links=links[:MAX_LINKS]),
        values={
            "num_links": len(links),
            "num_tried": len(links_of(tried)),
            "links": arrows(links, world),
            "ports": ",".join(map(str, ports[:8])) + (f",… +{len(ports) - 8}" if len(ports) > 8 else ""),
            "openings": commands(world, opening(into, firewall, (ports[0], ports[-1]), senders(links, judged, net))),
        },
        evidence=path_evidence(p for hop in sorted(bad) for p in bad[hop]),
    )
