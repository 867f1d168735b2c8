from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from allready.judging.analysis import Analysis
from allready.judging.majority import is_minority
from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import MAX_EVIDENCE
from allready.model import Confidence, Culprits, FaultClass, Hit, Reachability, RemedyStep, Severity
from allready.rules.net._chance import losing_links
from allready.rules.net._losses import MIN_SEGMENTS, MIN_SHARE, Sent, judge_sent
from allready.rules.net._pace import interface_of
from allready.rules.net._paths import MAX_LINKS, Link, accused, arrows, judge_paths
from allready.units import path_speed

HOPELESS = 0.2
"""Of so many lost packets TCP's time-outs grow from one repetition to the next, and connections end."""


@Rule(
    code="NET019",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.PATH,
    title="Packets between nodes are lost at random",
    message="{who} {who:loses/lose} packets: {share} of the small test packets on {num_links} directions ({links}) "
    "did not arrive "
    "({num} of {total}), and TCP sent {resent} of its segments again, {others} on the other paths; {rate} arrive",
    remedy=(
        RemedyStep(
            explanation="check cable, transceiver, port and the switch's counters, at both ends",
            where="node {where}",
            command="ip -s link show dev {interface}; ethtool -S {interface} | grep -i -E 'err|drop|crc|discard'",
        ),
        RemedyStep(
            explanation="a rate limit that drops packets (a policer) looks the same",
            where="node {where}",
            command="tc -s qdisc show dev {interface}; tc -s filter show dev {interface} ingress; nft list ruleset",
        ),
    ),
)
def path_loses(reach: Reachability, case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    Where TCP had to send segments of the test payloads again, or connections failed, three bursts of 100 small
    datagrams, a millisecond or two apart, in that direction: the last one and another must lose some, all together two
    of a hundred or more, and they may differ by what chance allows. They are too few to fill a queue, and the last one
    comes when nothing else does, so a link that is only slow loses none (NET017). A node is named when all its paths
    lose packets, in both directions or in one, and those between the others do not. Where a fifth or more is lost, the
    check ends here: collectives would only take their time until they fail.
    ## Why it matters
    A healthy network loses less than one packet of ten thousand. Each loss costs a round trip, or 0.2 s at the end of a
    message, and every collective waits for it.
    ## Check by hand
    `ping -i 0.01 -c 500 ADDRESS` between the nodes; `nstat -az TcpRetransSegs` before and after a transfer.
    ## When it is harmless
    Never on the network that carries the collectives.
    """
    sent, bad = case.of(judge_sent), case.of(losing_links)
    if not bad:
        return
    nodes = _nodes(bad, sent)
    fine = [s for link, s in sent.items() if link not in bad]
    links = sorted(bad, key=lambda link: -bad[link].share)
    where = nodes[0] if nodes else links[0][1]
    sent_to = case.of(judge_paths).datagrams
    lossy = (h[2] for h, d in sent_to.items() if h[:2] == links[0] and d.address == bad[links[0]].address)
    plane = next(lossy, None)
    num, total = sum(s.num_lost for s in bad.values()), sum(s.num_packets for s in bad.values())
    yield Hit(
        severity=Severity.BLOCKER if num >= HOPELESS * total else None,
        confidence=Confidence.CERTAIN if nodes else Confidence.LIKELY,
        culprits=Culprits(nodes=nodes, links=tuple(sorted(bad))[:MAX_LINKS]),
        values={
            "who": accused(nodes, links[0], case.world),
            "share": f"{num / total:.1%}",
            "num": num,
            "total": total,
            "num_links": len(bad),
            "links": arrows(sorted(bad), case.world),
            "resent": _resent(bad.values(), 1),
            "others": _resent(fine, 2),
            "rate": path_speed(max((s.best_gb_per_s for s in bad.values() if s.best_gb_per_s), default=None)),
            "where": case.world.label(where),
            "interface": interface_of(case, where, plane),
        },
        evidence=tuple(
            stated(
                f"probe {a} -> {b}",
                "{again} of {all} segments sent again, {rate}[[; {lost} of {datagrams} datagrams did not arrive]]",
                node_rank=a,
                again=s.num_resent,
                all=s.num_segments,
                rate=path_speed(s.best_gb_per_s),
                lost=s.num_lost if s.num_packets else None,
                datagrams=s.num_packets or None,
            )
            for (a, b), s in sorted(sent.items(), key=lambda item: (-item[1].share, item[0]))[:MAX_EVIDENCE]
        ),
    )


def _resent(found: Iterable[Sent], digits: int) -> str:
    ways = list(found)
    return f"{sum(s.num_resent for s in ways) / max(1, sum(s.num_segments for s in ways)):.{digits}%}"


def _nodes(bad: Mapping[Link, Sent], sent: Mapping[Link, Sent]) -> tuple[int, ...]:
    """The nodes whose paths all lose packets, in both directions or in one, where that explains every bad one.

    Paths that carried next to nothing say nothing, nor do those that lose packets perhaps for another reason.
    """
    known = {link for link, s in sent.items() if _is_whole(s)} | bad.keys()
    everyone = {n for link in sent for n in link}
    for ends in ((0, 1), (1,), (0,)):
        of_node = {n: {link for link in known if n in {link[end] for end in ends}} for n in everyone}
        found = sorted(n for n, links in of_node.items() if links <= bad.keys() and len({*chain(*links)}) > 2)
        explained = {link for n in found for link in of_node[n]}
        if found and is_minority(len(found), len(everyone)) and bad.keys() <= explained:
            return tuple(found)
    return ()


def _is_whole(path: Sent) -> bool:
    """Whether a path carried much and lost next to nothing, as far as that was counted."""
    lost = path.share if path.num_packets else path.resent_share
    return path.num_segments >= MIN_SEGMENTS and lost < MIN_SHARE
