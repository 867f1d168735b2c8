from collections.abc import Iterator, Mapping
from statistics import median

from allready.judging.analysis import Analysis
from allready.judging.majority import is_minority
from allready.judging.registry import Layer, Rule
from allready.judging.values import MAX_EVIDENCE
from allready.model import Confidence, Culprits, Evidence, FaultClass, Hit, Reachability, RemedyStep, Severity
from allready.rules.net._paths import IPERF, MAX_LINKS, Link, arrows, judge_paths

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
    layer=Layer.READINESS,
    title="Some paths are far slower than the others",
    message="TCP {what} on {num_links} directions ({links}) is far worse than elsewhere: {worst}, the median is "
    "{median}",
    remedy=(
        *IPERF,
        RemedyStep(
            explanation="then check speed and errors of the interface", where="both nodes", command="ip -s link"
        ),
    ),
)
def slow_path(reach: Reachability, case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    Throughput (of 1 MiB) and round trip (of 64 B) of every pair, against the median of all. A node is named when even
    its best path is four times worse than the median of the nodes' best; a pair, when it is so in both directions. The
    difference must also be 5 ms or more. With fewer than three nodes nothing is reported.
    ## Why it matters
    A collective runs at the pace of its slowest link: one pair at a tenth of the speed slows the whole job to a tenth.
    ## Check by hand
    `iperf3 -s` on one node and `iperf3 -c ADDRESS` on the other, for a suspect pair and for a good one.
    ## When it is harmless
    When the nodes are far apart by design (two sites), or another job used the link at that moment: this is a quick
    probe of one megabyte, not a measurement.
    """
    judged = case.of(judge_paths)
    transfer: dict[Link, float] = {}
    rtt: dict[Link, float] = {}
    for (src, dst, _), paths in judged.data.items():
        for p in paths:
            if p.throughput_gb_per_s is not None:
                seconds = PROBE_BYTES / (max(p.throughput_gb_per_s, MIN_GB_PER_S) * 1e9)
                transfer[src, dst] = min(seconds, transfer.get((src, dst), seconds))
            if p.rtt_s is not None:
                rtt[src, dst] = min(p.rtt_s, rtt.get((src, dst), p.rtt_s))
    for what, times, unit in (("1 MiB", transfer, "GB/s"), ("RTT", rtt, "ms")):
        if len(times) < MIN_LINKS or len({n for link in times for n in link}) < MIN_NODES:
            continue
        nodes, links, usual = _slow(times)
        if not links:
            continue
        worst = sorted(links, key=lambda link: -times[link])
        sender, receiver = worst[0]
        yield Hit(
            confidence=Confidence.LIKELY if nodes else Confidence.POSSIBLE,
            culprits=Culprits(nodes=nodes, links=links[:MAX_LINKS]),
            values={
                "what": what,
                "num_links": len(links),
                "links": arrows(links, case.world),
                "worst": _show(times[sender, receiver], unit),
                "median": _show(usual, unit),
                "sender": case.world.label(sender),
                "receiver": case.world.label(receiver),
                "address": next((p.address for h, ps in judged.data.items() if h[:2] == worst[0] for p in ps), "?"),
            },
            evidence=tuple(
                Evidence(source=f"TCP probe {a} -> {b}", text=_show(times[a, b], unit), node_rank=a)
                for a, b in worst[:MAX_EVIDENCE]
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
