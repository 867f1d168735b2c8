"""LNK007."""

from collections.abc import Iterator
from itertools import pairwise

from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.link_ends import address_book, is_unanswered, plain, snapshots
from allready.judging.link_paths import broken, names
from allready.judging.registry import Rule
from allready.model import Confidence, Culprits, Evidence, FaultClass, Hit, Live, Severity, clock_time

ONE_GAP_S = 1.5
TWICE = 2
"""Once may be chance; what comes again within half a minute will go on."""


@Rule(
    code="LNK007",
    severity=Severity.WARNING,
    fault_class=FaultClass.NET_BROKEN,
    since="0.1",
    layer=Layer.PACE,
    title="A path was broken for a moment and works again",
    message="{who}: the network was gone {num} times within the last half minute and came back; the job waited "
    "meanwhile",
    remedy="look at cable, transceiver and switch port of {who}: `ethtool -S IFNAME`, `dmesg -T | grep -i link`; the "
    "job goes on, and a retry of what failed may work",
)
def link_flaps(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Interfaces that lost their carrier and have it again, and connections whose data went unacknowledged for a while and
    now gets through, within the last half minute.
    ## Why it matters
    A link that flaps stops every rank each time; longer gaps end the job by somebody's time-out.
    ## Check by hand
    `cat /sys/class/net/IFNAME/carrier_changes`, `dmesg -T | grep -i link`.
    ## When it is harmless
    Once, for example when somebody moved a cable.
    """
    if case.of(broken) is not None:
        return
    carrier = {n: times for n in live.statuses if (times := _carrier_lost(live, n))}
    gaps = _gaps(live)
    if carrier:
        nodes, num = tuple(sorted(carrier)), max(len(t) for t in carrier.values())
        since = min(t for times in carrier.values() for t in times)
        culprits = Culprits(nodes=nodes)
    elif gaps:
        pairs = sorted(gaps)
        common = set.intersection(*(set(pair) for pair in pairs))
        num, since = max(len(t) for t in gaps.values()), min(t for times in gaps.values() for t in times)
        is_node = len(pairs) > 1 and len(common) == 1
        nodes = tuple(common) if is_node else tuple(sorted({n for pair in pairs for n in pair}))
        culprits = Culprits(nodes=nodes) if is_node else Culprits(links=tuple(pairs))
    else:
        return
    yield Hit(
        culprits=culprits,
        values={"who": names(live, nodes), "num": num},
        severity=Severity.ERROR if num >= TWICE else None,
        confidence=Confidence.CERTAIN if carrier else Confidence.LIKELY,
        evidence=(
            *(
                Evidence(source="/sys/class/net", text=f"node {n}: carrier lost {len(t)} times", node_rank=n)
                for n, t in sorted(carrier.items())[:4]
            ),
            *(
                Evidence(source="sockets", text=f"node {a} and node {b}: unacknowledged {len(t)} times, then answered")
                for (a, b), t in sorted(gaps.items())[:4]
            ),
        ),
        fault_time=clock_time(since),
    )


def _carrier_lost(live: Live, node: int) -> list[float]:
    """When an interface of the node had lost its carrier that had it before and has it again."""
    newest = live.statuses[node]
    words = [s for s in (*live.history.get(node, ()), newest) if s.attempt == newest.attempt and s.links]
    found = []
    for name in {link.name for s in words for link in s.links}:
        states = [(s.time_s, link.is_up and link.has_carrier) for s in words for link in s.links if link.name == name]
        if states and states[-1][1]:
            found += [
                time - newest.clock_offset_s for (_, before), (time, now) in pairwise(states) if before and not now
            ]
    return sorted(set(found))


def _gaps(live: Live) -> dict[tuple[int, int], list[float]]:
    """By pair of nodes: when data between them began to be unanswered that was answered later."""
    book = address_book(live)
    found: dict[tuple[int, int], list[float]] = {}
    for node in sorted(live.statuses):
        before: dict[tuple[int, int], bool] = {}
        began: dict[tuple[int, int], list[float]] = {}
        for status in snapshots(live, node):
            stuck: dict[tuple[int, int], bool] = {}
            for row in status.sockets:
                other = book.get(plain(row.remote))
                if other is not None and other != node:
                    pair = (min(node, other), max(node, other))
                    stuck[pair] = stuck.get(pair, False) or is_unanswered(row)
            for pair in stuck:
                if stuck[pair] and not before.get(pair, False):
                    began.setdefault(pair, []).append(status.time_s - status.clock_offset_s)
            before = stuck
        for pair, times in began.items():
            if before.get(pair) is False:  # a connection that is gone did not come back
                found.setdefault(pair, []).extend(times)
    return {pair: _apart(sorted(times)) for pair, times in found.items()}


def _apart(times: list[float]) -> list[float]:
    """Without those that follow another one so closely that both ends tell of one gap."""
    kept: list[float] = []
    for time in times:
        if not kept or time - kept[-1] > ONE_GAP_S:
            kept.append(time)
    return kept
