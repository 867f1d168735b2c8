from collections.abc import Iterator
from itertools import pairwise

from allready.judging.analysis import Analysis
from allready.judging.link_ends import address_book, is_unanswered, plain, snapshots
from allready.judging.link_paths import broken, names
from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.model import Confidence, Culprits, FaultClass, Hit, Live, RemedyStep, Severity, clock_time

ONE_GAP_S = 1.5
TWICE = 2
"""Once may be chance; what comes again within half a minute will go on."""

Gaps = dict[tuple[int, ...], list[float]]
"""Node or pair of nodes -> when it was interrupted."""


@Rule(
    code="LNK007",
    severity=Severity.WARNING,
    fault_class=FaultClass.NET_BROKEN,
    layer=Layer.PACE,
    title="A network link flaps",
    message="the network of {who} was interrupted {num} times within the last half minute and recovered; the job "
    "waited meanwhile",
    remedy=RemedyStep(
        explanation="check cable, transceiver and switch port; the job continues, and a retry of what failed may work",
        where="{who}",
        command="grep . /sys/class/net/*/carrier_changes; dmesg -T | grep -i link",
    ),
)
def link_flaps(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Interfaces that lost their carrier and have it again, and connections whose data went unacknowledged for a while and
    now gets through, within the last half minute.
    ## Why it matters
    A link that flaps stops every rank each time; longer gaps end the job by a timeout.
    ## Check by hand
    `cat /sys/class/net/IFNAME/carrier_changes`, `dmesg -T | grep -i link`.
    ## When it is harmless
    Once, for example when a cable was moved.
    """
    if case.of(broken) is not None:
        return
    carrier: Gaps = {(n,): times for n in live.statuses if (times := _carrier_lost(live, n))}
    gaps = _gaps(live)
    found = carrier or gaps
    if not found:
        return
    common = set.intersection(*map(set, gaps)) if gaps else set()
    is_node = bool(carrier) or (len(gaps) > 1 and len(common) == 1)
    nodes = sorted(common if is_node and not carrier else {n for where in found for n in where})
    num = max(map(len, found.values()))
    yield Hit(
        culprits=Culprits(nodes=tuple(nodes)) if is_node else Culprits(links=tuple((a, b) for a, b in sorted(gaps))),
        values={"who": names(live, nodes), "num": num},
        severity=Severity.ERROR if num >= TWICE else None,
        confidence=Confidence.CERTAIN if carrier else Confidence.LIKELY,
        evidence=(
            *(
                stated("/sys/class/net", "node {node}: carrier lost {num} times", node_rank=n, node=n, num=len(t))
                for (n,), t in sorted(carrier.items())[:4]
            ),
            *(
                stated(
                    "sockets", "node {a} and node {b}: unacknowledged {num} times, then answered", a=a, b=b, num=len(t)
                )
                for (a, b), t in sorted(gaps.items())[:4]
            ),
        ),
        fault_time=clock_time(min(t for times in found.values() for t in times)),
    )


def _carrier_lost(live: Live, node: int) -> list[float]:
    """When an interface of the node lost its carrier that had it before and has it again."""
    newest = live.statuses[node]
    statuses = [s for s in (*live.history.get(node, ()), newest) if s.attempt == newest.attempt and s.links]
    found = set()
    for name in {link.name for s in statuses for link in s.links}:
        states = [(s.time_s, k.is_up and k.has_carrier) for s in statuses for k in s.links if k.name == name]
        if states and states[-1][1]:
            found |= {newest.by_node_0(t) for (_, before), (t, now) in pairwise(states) if before and not now}
    return sorted(found)


def _gaps(live: Live) -> Gaps:
    """By pair of nodes: when data between them began to be unanswered that was answered later."""
    book = address_book(live)
    found: Gaps = {}
    for node in sorted(live.statuses):
        before: dict[tuple[int, ...], bool] = {}
        began: Gaps = {}
        for status in snapshots(live, node):
            stuck: dict[tuple[int, ...], bool] = {}
            for row in status.sockets:
                other = book.get(plain(row.remote))
                if other is not None and other != node:
                    pair = (min(node, other), max(node, other))
                    stuck[pair] = stuck.get(pair, False) or is_unanswered(row)
            for ends in stuck:
                if stuck[ends] and not before.get(ends, False):
                    began.setdefault(ends, []).append(status.by_node_0(status.time_s))
            before = stuck
        for ends, times in began.items():
            if before.get(ends) is False:  # a connection that is gone did not come back
                found.setdefault(ends, []).extend(times)
    return {ends: _apart(sorted(times)) for ends, times in found.items()}


def _apart(times: list[float]) -> list[float]:
    """Without those that follow another one so closely that both ends report one gap."""
    kept: list[float] = []
    for time in times:
        if not kept or time - kept[-1] > ONE_GAP_S:
            kept.append(time)
    return kept
