"""Paths between nodes that lose packets."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from msgspec.structs import replace

from allready.judging.addresses import job_of
from allready.judging.analysis import Analysis
from allready.judging.majority import is_minority
from allready.judging.master_path import losing_master_paths
from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import MAX_EVIDENCE
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    Hit,
    LaunchFacts,
    PathProbe,
    PerNode,
    Reachability,
    RemedyStep,
    Severity,
)
from allready.model.addresses import endpoint
from allready.rules.net._chance import losing_links
from allready.rules.net._losses import MIN_SEGMENTS, MIN_SHARE, Sent, judge_sent
from allready.rules.net._pace import interface_of, slow_transfers
from allready.rules.net._packet_size import find_hole, passed_bytes, stuck_path
from allready.rules.net._paths import (
    IPERF,
    MAX_LINKS,
    Hop,
    NodePair,
    accused,
    arrows,
    back,
    common_node,
    judge_paths,
    links_of,
    path_evidence,
    path_hit,
)
from allready.units import path_speed, size

HOPELESS = 0.2
"""Of so many lost packets TCP's time-outs grow from one repetition to the next, and connections end."""


@Rule(
    code="NET019",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.PATH,
    title="Packets between nodes are lost at random",
    message="{who} {who:loses/lose} packets: {share} of the small test packets on {num_links} "
    "{links:direction/directions} ({links}) did not arrive ({num} of {total}), and TCP sent {resent} "
    "of its segments again, {others} on the other paths; {rate} arrive",
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


def _nodes(bad: Mapping[NodePair, Sent], sent: Mapping[NodePair, Sent]) -> tuple[int, ...]:
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


@Rule(
    code="NET027",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.NET_BROKEN,
    layer=Layer.PATH,
    title="The path to node 0 loses so many packets that connections fail",
    message="the path between node {nodes} and node 0 ({address}) loses packets"
    "[[: {resent} of {sent} segments had to be sent again]][[; {broken} connections were made and broke]]",
    remedy=(
        RemedyStep(
            explanation="check cable, transceiver, port and the switch's counters, at both ends",
            where="node {nodes}",
            command="ip -s link; nstat -az TcpRetransSegs",
        ),
        RemedyStep(
            explanation="if this loses nothing, check there how allready ended",
            where="node {nodes}",
            command="ping -i 0.05 -c 200 {host}",
        ),
    ),
)
def master_path_loses(launch: PerNode[LaunchFacts], case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    Connections between a node and node 0 that were made and then broke, where the kernel had sent at least a fifth of
    their segments again before they arrived, or where the node is alive and gets no connection any more to the port
    over which it had joined. A connection that stands counts where it repeats as much and the test of paths failed
    with that node. Segments that never arrived do not count: a machine that is gone answers none.
    ## Why it matters
    The node looks as if it had died, or as if its port were filtered, and both are healthy.
    ## Check by hand
    `ping -i 0.05 -c 200` to node 0; `ss -tin` shows `retrans:` of a connection.
    ## When it is harmless
    Never: collectives over that path fail in the same way.
    """
    counted = {n for link in case.of(losing_links) for n in link}  # NET019 knows more
    found = {n: p for n, p in case.of(losing_master_paths).items() if p.num_broken or n not in counted}
    if not found or not launch:
        return
    nodes, job = tuple(sorted(found)), job_of(launch)
    sent, resent = sum(p.num_sent for p in found.values()), sum(p.num_resent for p in found.values())
    yield Hit(
        culprits=Culprits(links=tuple((n, 0) for n in nodes)),
        confidence=Confidence.LIKELY,
        values={
            "nodes": case.world.labels(nodes),
            "address": endpoint(job.master_addr, job.master_port),
            "host": job.master_addr,
            "resent": resent or None,
            "broken": sum(p.num_broken for p in found.values()) or None,
            "sent": sent,
        },
        evidence=tuple(
            stated(
                "connections to node 0",
                "node {node}: broken connections {broken}[[; {resent} of {sent} segments sent again]]"
                "[[; its UDP datagrams to port {port} pass]]",
                node_rank=node,
                node=node,
                broken=path.num_broken,
                resent=path.num_resent or None,
                sent=path.num_sent,
                port=job.master_port if path.calls else None,
            )
            for node, path in sorted(found.items())[:MAX_EVIDENCE]
        ),
    )


LARGE_BYTES = 2**20
MIN_GB_PER_S = 1e-3
SWEPT_BYTES = 2**16
"""From this size on an operation takes the time of its bytes, and not of its messages, on a path that is so slow."""


@Rule(
    code="NET008",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.PATH,
    title="A TCP connection is established but barely transfers data",
    message="connections are established on {num_links} {links:direction/directions} ({links}), but {stuck} did not "
    "arrive within {seconds} s (up to {passed} did)",
    remedy=(
        *IPERF,
        RemedyStep(
            explanation="check for errors and lost packets; if not even 64 B arrive, find what is in the way "
            "(proxy, stopped process)",
            where="both nodes",
            command="ip -s link; nstat -az TcpRetransSegs",
        ),
    ),
)
def path_stalls(reach: Reachability, case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    Paths on which a connection is established but a payload does not arrive before its deadline, although packets of
    full size pass (so it is not the MTU: NET002), or although not even the smallest payload did. If bytes moved, but
    below 1 MB/s, it is only a warning, since a very busy machine can cause that too, and none where NET017 reports the
    path; where the sweep of the whole job is as slow from 64 KiB on, it is an error, unless NET017 has one.
    ## Why it matters
    1 MiB within the deadline is less than a thousandth of what any cluster network carries. Collectives run at the pace
    of the slowest link.
    ## Check by hand
    `iperf3 -s` on one node, `iperf3 -c ADDRESS` and `iperf3 -R -c ADDRESS` on the other; `ethtool -S IFNAME`.
    ## When it is harmless
    When the link is known to be slow and the job tolerates it.
    """
    judged = case.of(judge_paths)
    compared = case.of(slow_transfers)
    is_sweep_slow = _is_sweep_slow(case)
    # NET017 and NET019 say why; a mere warning of NET017 is not enough where the job's collectives are as slow.
    compared = compared if compared is None or compared.is_clear or not is_sweep_slow else None
    reported = {*(compared.links if compared is not None else ()), *case.of(losing_links)}
    stalled: dict[Hop, PathProbe] = {}
    slow: dict[Hop, PathProbe] = {}
    for hop, paths in judged.data.items():
        path = stuck_path(paths)
        if path is not None:
            if find_hole(case, hop) is None:
                stalled[hop] = path
        elif hop[:2] not in reported and (barely := _moves_barely(paths)) is not None:
            slow[hop] = barely
    bad = {*stalled, *slow}
    fine = links_of(h for h in judged.fine if h not in bad and back(h) not in bad)
    of_slow = Severity.ERROR if is_sweep_slow else Severity.WARNING
    for found, severity in ((stalled, Severity.ERROR), (slow, of_slow)):
        if not found:
            continue
        worst = min(found.values(), key=passed_bytes)
        hit = path_hit(
            case,
            found,
            common_node(links_of(found), fine),
            Confidence.LIKELY,
            stuck=size(worst.stuck_bytes or LARGE_BYTES),
            passed=size(passed_bytes(worst)),
            seconds=f"{worst.duration_s:.1f}",
            address=worst.address,
            receiver=case.world.label(worst.dst),
            sender=case.world.label(worst.src),
            evidence=path_evidence(found.values()),
        )
        if worst.passed_bytes:
            yield replace(hit, severity=severity)
        else:
            yield replace(hit, severity=Severity.BLOCKER, fault_class=FaultClass.START_PATH)


def _moves_barely(paths: list[PathProbe]) -> PathProbe | None:
    """The path whose measured transfer moved, but not whole; None when any other carried as much in time."""
    slow = [p for p in paths if p.outcome == "ok" and (p.throughput_gb_per_s or 0.0) < MIN_GB_PER_S]
    slow = [p for p in slow if p.throughput_gb_per_s is not None]
    return slow[0] if slow and all(passed_bytes(p) < LARGE_BYTES for p in paths) else None


def _is_sweep_slow(case: Analysis) -> bool:
    """Whether the collectives of the whole job were as slow, at every size that was measured."""
    first = case.collectives.first if case.collectives is not None else None
    measured = [p.busbw_gb_per_s for p in (first.points if first else ()) if p.size_bytes >= SWEPT_BYTES]
    return bool(measured) and max(measured) < MIN_GB_PER_S
