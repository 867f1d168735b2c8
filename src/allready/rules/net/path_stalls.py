"""NET008."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.judging.values import size
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    Hit,
    NetFacts,
    PathProbe,
    PerNode,
    Reachability,
    RemedyStep,
    RollCall,
    Severity,
    World,
)
from allready.rules.net._paths import MAX_LINKS, Hop, arrows, common_node, judge_paths, links_of, path_evidence
from allready.rules.net.mtu_black_hole import find_hole, stuck_path

LARGE_BYTES = 2**20
CRAWL_GB_PER_S = 1e-3


@Rule(
    code="NET008",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMM,
    since="0.1",
    layer=Layer.PATH,
    title="A connection comes up and then hardly moves",
    message="connections come up, but {stuck} did not arrive within {seconds} s (up to {passed} did); "
    "directions: {num_links} ({links})",
    remedy=(
        RemedyStep(
            explanation="measure the link: start the server on one node",
            where="node {receiver}",
            command="iperf3 -s",
        ),
        RemedyStep(
            explanation="and the client on the other",
            where="node {sender}",
            command="iperf3 -c {address}",
        ),
        RemedyStep(
            explanation="look for errors and lost packets; if not even 64 B arrive, see what stands in the way "
            "(proxy, stopped process)",
            where="both nodes",
            command="ip -s link; nstat -az TcpRetransSegs",
        ),
    ),
)
def path_stalls(
    reach: Reachability, world: World, roll: RollCall | None = None, net: PerNode[NetFacts] | None = None
) -> Iterator[Hit]:
    """
    ## What it checks
    Paths on which a connection came up, but a payload did not arrive before its deadline, although packets of full
    size do pass (so that it is not a matter of the MTU: NET002), or although not even the smallest payload did. If
    the bytes did move, but below 1 MB/s, it is only a warning: a very busy machine can do that too.
    ## Why it matters
    1 MiB within the deadline is less than a thousandth of what any cluster network carries. Collectives go at the
    pace of the slowest link: every rank will wait for this one.
    ## Check by hand
    `iperf3 -s` on one node, `iperf3 -c ADDRESS` and `iperf3 -R -c ADDRESS` on the other; `ethtool -S IFNAME`.
    ## When it is harmless
    When the link is known to be slow, and the job is patient.
    """
    judged = judge_paths(reach, roll)
    stalled: dict[Hop, PathProbe] = {}
    crawling: dict[Hop, PathProbe] = {}
    for hop, paths in judged.data.items():
        path = stuck_path(paths)
        if path is not None:
            if find_hole(hop, paths, judged, net) is None:
                stalled[hop] = path
        elif (slow := _crawls(paths)) is not None:
            crawling[hop] = slow
    bad = {*stalled, *crawling}
    fine = links_of(h for h in judged.fine if h not in bad and (h[1], h[0], h[2]) not in bad)
    for found, severity in ((stalled, Severity.ERROR), (crawling, Severity.WARNING)):
        links = links_of(found)
        if not links:
            continue
        node = common_node(links, fine)
        worst = min(found.values(), key=_passed)
        nothing = not worst.passed_bytes
        yield Hit(
            severity=Severity.BLOCKER if nothing else severity,
            fault_class=FaultClass.START_PATH if nothing else None,
            confidence=Confidence.LIKELY,
            culprits=Culprits(nodes=() if node is None else (node,), links=links[:MAX_LINKS]),
            values={
                "num_links": len(links),
                "links": arrows(links, world),
                "stuck": size(worst.stuck_bytes or LARGE_BYTES),
                "passed": size(_passed(worst)),
                "seconds": f"{worst.duration_s:.1f}",
                "address": worst.address,
                "receiver": world.label(worst.dst),
                "sender": world.label(worst.src),
            },
            evidence=path_evidence(found.values()),
        )


def _passed(path: PathProbe) -> int:
    return path.passed_bytes[-1] if path.passed_bytes else 0


def _crawls(paths: list[PathProbe]) -> PathProbe | None:
    """The path whose measured transfer moved, but not whole; None when any other carried as much in time."""
    slow = [
        p
        for p in paths
        if p.outcome == "ok"
        and p.throughput_gb_per_s is not None
        and p.throughput_gb_per_s < CRAWL_GB_PER_S
        and _passed(p) < LARGE_BYTES
    ]
    return slow[0] if slow and all(_passed(p) < LARGE_BYTES for p in paths) else None
