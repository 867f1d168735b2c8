"""The hit of a rule about a path between nodes that is broken while the job runs, and its evidence."""

import shlex
from collections.abc import Iterable

from allready.judging.analysis import Analysis
from allready.judging.link_ends import Stuck, Way, newest_sockets
from allready.judging.link_paths import Broken, arrows, broken, names, node_label
from allready.judging.stated import said, stated
from allready.model import Confidence, Culprits, Evidence, Hit, Live, Phrase, SocketRow, clock_time

MAX_SOCKETS = 8
_UNANSWERED = (
    "node {src} -> node {dst}: {waiting} B in {segments} segments unacknowledged after {timeouts} retransmission "
    "timeouts"
    "[[, last data from there {heard} s ago]][[, segments of {segment} B, path MTU {mtu} B]]"
)
_ARRIVED = {
    Way.LOST: "; the other end did not get it",
    Way.ANSWER_LOST: "; the other end has it: the acknowledgement is lost",
}


def broken_path(case: Analysis, kind: str) -> Broken | None:
    """What is broken between the nodes, if it is of this kind."""
    found = case.of(broken)
    return found if found is not None and found.kind == kind else None


def path_hit(
    live: Live,
    found: Broken,
    *,
    confidence: Confidence | None = None,
    evidence: Iterable[Evidence] = (),
    **values: object,
) -> Hit:
    """The hit of a rule about a broken path.

    Args:
        live: the job.
        found: the path; its nodes are the culprits, or where there are none its directions.
        confidence: by default as sure as the path.
        evidence: of the rule, before the sockets and the silence of nodes.
        values: of the message, besides who, links, for_s, interface, and of the first stuck connection node, address.
    """
    nodes = found.nodes or tuple(sorted({n for link in found.links for n in link}))
    first = max(found.stuck, key=lambda s: s.row.backoff, default=None)
    rows = sorted(found.stuck, key=lambda s: -s.row.backoff)[:MAX_SOCKETS]
    return Hit(
        culprits=Culprits(nodes=found.nodes) if found.nodes else Culprits(links=found.links),
        values={
            "who": names(live, nodes),
            "links": arrows(found.links),
            "for_s": f"{found.for_s:.1f}",
            "node": node_label(live, first.src if first is not None else nodes[0]),
            "address": first.row.remote if first is not None else None,
            "interface": interfaces(live, nodes),
            **values,
        },
        confidence=confidence or (Confidence.CERTAIN if found.is_sure else Confidence.LIKELY),
        evidence=(*evidence, *(_row(live, s) for s in rows), *silence(live)),
        fault_time=clock_time(live.now_s - found.for_s),
    )


def interfaces(live: Live, nodes: Iterable[int]) -> str:
    """The interface over which ranks of the first of these nodes are connected to other nodes; IFNAME if not known."""
    for node in nodes:
        rows, answer = newest_sockets(live, node)[0], live.evidence.get(node)
        known = answer.interfaces if answer is not None else {}
        names = {known[row.local] for row in rows if row.local in known}
        if names:
            return shlex.quote(min(names))
    return "IFNAME"


def silence(live: Live) -> tuple[Evidence, ...]:
    """For how long each node that is not node 0 has been silent, the most silent first."""
    silent = sorted(((s, n) for n, s in live.heard_s.items() if n in live.statuses), reverse=True)
    return tuple(
        stated(
            "agent heartbeats",
            "node {node}: last heartbeat {seconds} s ago[[, {loss}]]",
            node_rank=n,
            node=n,
            seconds=f"{s:.1f}",
            loss=live.lost[n].phrase if n in live.lost else None,
        )
        for s, n in silent[:4]
    )


def socket_name(row: SocketRow) -> Phrase:
    """`socket 10.0.0.1:40000 -> 10.0.0.2:41000, rank 3`."""
    local, remote = f"{row.local}:{row.local_port}", f"{row.remote}:{row.remote_port}"
    return said("socket {local} -> {remote}[[, rank {rank}]]", local=local, remote=remote, rank=row.rank)


def _row(live: Live, end: Stuck) -> Evidence:
    row = end.row
    return stated(
        socket_name(row),
        _UNANSWERED + _ARRIVED.get(end.way, ""),
        node_rank=end.src if end.src in live.statuses else None,
        src=end.src,
        dst=end.dst,
        waiting=row.send_queue_bytes,
        segments=row.unacked,
        timeouts=row.backoff,
        heard=None if row.last_received_s is None else f"{row.last_received_s:.1f}",
        segment=row.segment_bytes if row.path_mtu_bytes is not None else None,
        mtu=row.path_mtu_bytes,
    )
