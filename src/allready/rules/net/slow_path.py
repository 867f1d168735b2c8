"""NET017."""

from collections.abc import Iterator, Mapping
from statistics import median

from allready.judging.layers import Layer
from allready.judging.majority import is_minority
from allready.judging.registry import Rule
from allready.model import (
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    Hit,
    Reachability,
    RemedyStep,
    RollCall,
    Severity,
    World,
)
from allready.rules.net._paths import MAX_LINKS, Link, arrows, judge_paths

MIN_NODES = 3
MIN_LINKS = 6
RATIO = 4.0
EXCESS_S = 0.005  # below that a difference may be the scheduler of a busy machine
PROBE_BYTES = 2**20
MIN_GB_PER_S = 1e-6  # what is rounded to nothing is still a number


@Rule(
    code="NET017",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    since="0.1",
    layer=Layer.READINESS,
    title="Some paths are far slower than the others",
    message="TCP {what} is far worse than elsewhere: {worst}, and the median is {median}; directions: "
    "{num_links} ({links})",
    remedy=(
        RemedyStep(
            explanation="measure it properly: start the server on one node",
            where="node {receiver}",
            command="iperf3 -s",
        ),
        RemedyStep(
            explanation="and the client on the other",
            where="node {sender}",
            command="iperf3 -c {address}",
        ),
        RemedyStep(
            explanation="then look at speed and errors of the interface",
            where="both nodes",
            command="ip -s link",
        ),
    ),
)
def slow_path(reach: Reachability, world: World, roll: RollCall | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    Throughput (of 1 MiB) and round trip (of 64 B) of every pair, against the median of all. A node is named when even
    its best path is four times worse than the median of the nodes' best, a pair when it is so in both directions. The
    difference must also be 5 ms or more, and with fewer than three nodes nothing is said.
    ## Why it matters
    A collective runs at the pace of its slowest link: one pair at a tenth of the speed slows the whole job to a
    tenth.
    ## Check by hand
    `iperf3 -s` on one node and `iperf3 -c ADDRESS` on the other, for a suspect pair and for a good one.
    ## When it is harmless
    When the nodes are meant to be far apart (two sites), or another job used the link at that moment: this is a quick
    probe of a megabyte, not a measurement.
    """
    judged = judge_paths(reach, roll)
    transfer: dict[Link, float] = {}
    rtt: dict[Link, float] = {}
    for (src, dst, _), paths in judged.data.items():
        for p in paths:
            link = (src, dst)
            if p.throughput_gb_per_s is not None:
                seconds = PROBE_BYTES / (max(p.throughput_gb_per_s, MIN_GB_PER_S) * 1e9)
                transfer[link] = min(seconds, transfer.get(link, seconds))
            if p.rtt_s is not None:
                rtt[link] = min(p.rtt_s, rtt.get(link, p.rtt_s))
    for what, times, unit in (("1 MiB", transfer, "GB/s"), ("RTT", rtt, "ms")):
        if len(times) < MIN_LINKS or len({n for link in times for n in link}) < MIN_NODES:
            continue
        nodes, links, usual = _slow(times)
        if not links:
            continue
        sender, receiver = max(links, key=lambda link: times[link])
        probes = (p for hop, found in judged.data.items() if hop[:2] == (sender, receiver) for p in found)
        yield Hit(
            confidence=Confidence.LIKELY if nodes else Confidence.POSSIBLE,
            culprits=Culprits(nodes=nodes, links=links[:MAX_LINKS]),
            values={
                "what": what,
                "num_links": len(links),
                "links": arrows(links, world),
                "worst": _show(times[sender, receiver], unit),
                "median": _show(usual, unit),
                "sender": world.label(sender),
                "receiver": world.label(receiver),
                "address": next((p.address for p in probes), "?"),
            },
            evidence=tuple(
                Evidence(source=f"TCP probe {a} -> {b}", text=_show(times[a, b], unit), node_rank=a)
                for a, b in sorted(links, key=lambda link: -times[link])[:16]
            ),
        )


def _slow(times: Mapping[Link, float]) -> tuple[tuple[int, ...], tuple[Link, ...], float]:
    """Slow nodes (all their paths are), slow directions, and the median to compare with; never more than half."""
    best: dict[int, float] = {}
    for (a, b), seconds in times.items():
        for n in (a, b):
            best[n] = min(seconds, best.get(n, seconds))
    usual = median(best.values())
    slow = {n for n, seconds in best.items() if _is_slow(seconds, usual)}
    if not is_minority(len(slow), len(best)):
        return (), (), usual
    rest = {link: seconds for link, seconds in times.items() if not slow.intersection(link)}
    among = median(rest.values()) if rest else usual
    pairs = {
        link
        for link, seconds in rest.items()
        if _is_slow(seconds, among) and _is_slow(rest.get(link[::-1], 0.0), among)
    }
    if not is_minority(len(pairs), len(rest)):
        pairs = set()
    touching = {link for link in times if slow.intersection(link)}
    return tuple(sorted(slow)), tuple(sorted(pairs | touching)), among


def _is_slow(seconds: float, usual: float) -> bool:
    return seconds > RATIO * usual and seconds - usual >= EXCESS_S


def _show(seconds: float, unit: str) -> str:
    return f"{seconds * 1e3:.2f} ms" if unit == "ms" else f"{PROBE_BYTES / seconds / 1e9:.3g} GB/s"
