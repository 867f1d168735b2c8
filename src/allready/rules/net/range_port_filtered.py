from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.values import listed
from allready.model import Confidence, FaultClass, Hit, Reachability, RemedyStep, Severity
from allready.rules.net._paths import judge_paths, links_of, openings, path_evidence, path_hit


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
