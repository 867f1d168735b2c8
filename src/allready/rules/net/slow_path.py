from collections.abc import Callable, Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import MAX_EVIDENCE
from allready.model import Confidence, Culprits, Evidence, FaultClass, Hit, Reachability, RemedyStep, Severity
from allready.rules.net._chance import losing_links
from allready.rules.net._pace import PROBE_BYTES, SlowPaths, bandwidths, interface_of, slow_round_trips, slow_transfers
from allready.rules.net._paths import IPERF, MAX_LINKS, accused, arrows, judge_paths
from allready.units import path_speed


@Rule(
    code="NET017",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.READINESS,
    title="Some paths are far slower than the others",
    message="{who} {who:is/are} far slower than the others: TCP {what} {worst}[[, elsewhere "
    "{median} at the median|, the best paths of the other nodes {best} at the median]] "
    "({num_links} {links:direction/directions}: {links})",
    remedy=(
        *IPERF,
        RemedyStep(
            explanation="then check negotiated speed, rate limits, errors and other traffic of the interface, and its "
            "switch port",
            where="node {where}",
            command="ethtool {interface} | grep Speed; tc -s qdisc show dev {interface}; "
            "ip -s link show dev {interface}",
        ),
    ),
)
def slow_path(reach: Reachability, case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    Throughput (of 1 MiB, or of the part of it that a slow path carries in half a second) and round trip (of 64 B) of
    every pair; networks of several interfaces are compared each by itself. A node is named
    when even its best path is four times worse than the median of the nodes' best, in both directions or in one; a
    pair, when both directions are four times worse than the median of all paths between nodes that are not named. The
    sentence gives the median of all other directions, or, where most of these are bad as well, that of the other nodes'
    best paths. The difference must also be 5 ms or more. It is an error where all of the
    node's paths are eight times slower and 1 MiB takes 50 ms longer. Half of the nodes are named, as possible, where
    none of their paths carries 1 MiB/s and the others reach each other eight times faster. With fewer than three nodes
    nothing is reported.
    ## Why it matters
    A collective runs at the pace of its slowest link: one pair at a tenth of the speed slows the whole job to a tenth.
    ## Check by hand
    `iperf3 -s` on one node and `iperf3 -c ADDRESS` on the other, for a suspect pair and for a good one.
    ## When it is harmless
    When the nodes are far apart by design (two sites), or another job used the link at that moment: this is a quick
    probe of one megabyte, not a measurement.
    """
    transfers, losing = case.of(slow_transfers), case.of(losing_links)
    if transfers is not None and not all(link in losing or link[::-1] in losing for link in transfers.links):
        severity = Severity.ERROR if transfers.is_clear else None
        yield _hit(case, transfers, "1 MiB", lambda s: path_speed(PROBE_BYTES / s / 1e9), severity)
    trips = case.of(slow_round_trips)
    if trips is not None:
        yield _hit(case, trips, "RTT", lambda s: f"{s * 1e3:.2f} ms", None)


def _hit(case: Analysis, slow: SlowPaths, what: str, show: Callable[[float], str], severity: Severity | None) -> Hit:
    judged = case.of(judge_paths)
    sender, receiver = slow.worst[0]
    of_nodes = bandwidths(slow.seconds) if what != "RTT" else {}
    where = slow.nodes[0] if slow.nodes else sender
    elsewhere_s = slow.elsewhere_s
    return Hit(
        severity=severity,
        confidence=Confidence.LIKELY if slow.nodes and not slow.is_half else Confidence.POSSIBLE,
        culprits=Culprits(nodes=slow.nodes, links=slow.links[:MAX_LINKS]),
        values={
            "who": accused(slow.nodes, slow.worst[0], case.world),
            "what": what,
            "num_links": len(slow.links),
            "links": arrows(slow.links, case.world),
            "worst": show(slow.seconds[sender, receiver]),
            "median": show(elsewhere_s) if elsewhere_s is not None else None,
            "best": show(slow.best_elsewhere_s),
            "sender": case.world.label(sender),
            "receiver": case.world.label(receiver),
            "where": case.world.label(where),
            "interface": interface_of(case, where, slow.plane),
            "address": next((p.address for p in judged.data.get((sender, receiver, slow.plane), ())), None),
        },
        evidence=(
            *(
                Evidence(source=f"TCP probe {a} -> {b}", text=show(slow.seconds[a, b]), node_rank=a)
                for a, b in slow.worst[: MAX_EVIDENCE // 2]
            ),
            *(
                stated(
                    "bandwidth of the node's links",
                    "out {sent}, in {received}",
                    node_rank=node,
                    sent=path_speed(out),
                    received=path_speed(inward),
                )
                for node, (out, inward) in sorted(of_nodes.items(), key=lambda item: min(x or 0.0 for x in item[1]))[
                    : MAX_EVIDENCE // 2
                ]
            ),
        ),
    )
