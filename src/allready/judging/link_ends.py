"""Ends of connections between nodes whose data goes unanswered, and what is known of the way between them.

Only data that is on its way accuses: a connection that is idle says nothing of its path.  A process that is stopped or
busy answers all the same, since its kernel does; a process that ended has its connections closed.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from allready.judging.live_status import SILENT_S
from allready.model import Live, LossReason, NodeStatus, SocketRow
from allready.model.addresses import is_loopback, parse

UNANSWERED = 2
"""Time-outs in a row without an answer.  On a path that loses one packet of twenty, this and the packet itself and the
kernel's early probe are lost together once in 160,000 times; on a good one never.  It takes 0.6 s."""
SURELY = 3
MIN_S = 1.0
"""And nothing else came from the other end for so long."""
MAX_AGE_S = 10.0
"""Older words about sockets are not asked."""
TOGETHER_S = 3.0
CAME_MARGIN_S = 0.2
"""Clocks of the kernel are coarse, and a first packet may have been lost by itself."""
AFTER_S = 0.3
"""What was seen so shortly after the last data may still be from before."""
CONNECTING = "SYN_SENT"

Key = tuple[str, int, str, int]


class Way(StrEnum):
    """What becomes of data that is not acknowledged."""

    LOST = "lost"  # it does not arrive at the other end
    ANSWER_LOST = "answer lost"  # it does, again and again, so the way back is broken
    UNKNOWN = "unknown"  # too little is known of the other end since


class Stuck(Struct, frozen=True, kw_only=True):
    """One end of a connection whose data is not acknowledged.

    `for_s`: since the last data came from there, until now.  `hears`: data of the other end came after this one's had
    begun to go unanswered, so that the way from there works.
    """

    src: int
    dst: int
    row: SocketRow
    way: Way
    for_s: float
    hears: bool = False

    @property
    def broken(self) -> frozenset[tuple[int, int]]:
        """Directions that this proves to be broken; none when the other end is not known."""
        if self.way is Way.UNKNOWN:
            return frozenset()
        return frozenset({(self.src, self.dst) if self.way is Way.LOST else (self.dst, self.src)})


def address_book(live: Live) -> dict[str, int]:
    """Address -> node, without those that several nodes have (docker0) and loopback.

    The near end of a node's own connections is an address of that node, also where its addresses were not reported.
    """
    found: dict[str, set[int]] = {}
    reported = {n: set(a) for n, a in live.addresses.items()}
    for node, answer in live.evidence.items():
        reported.setdefault(node, set()).update(answer.addresses, (row.local for row in answer.sockets))
    for node in live.statuses:
        for status in snapshots(live, node)[-1:]:
            reported.setdefault(node, set()).update(row.local for row in status.sockets)
    for node, addresses in reported.items():
        for address in addresses:
            found.setdefault(plain(address), set()).add(node)
    return {a: next(iter(nodes)) for a, nodes in found.items() if len(nodes) == 1 and a and not is_loopback(a)}


def plain(address: str) -> str:
    """An address in one spelling, "" for garbage."""
    parsed = parse(address)
    return "" if parsed is None else str(parsed)


def newest_sockets(live: Live, node: int) -> tuple[tuple[SocketRow, ...], float]:
    """The newest rows of a node, and how many seconds ago they were seen; none when all that is known of it is old."""
    status = live.statuses.get(node)
    words: list[tuple[float, tuple[SocketRow, ...]]] = []
    answer = live.evidence.get(node)
    if answer is not None and answer.sockets:
        words.append((answer.time_s, answer.sockets))
    if status is not None:
        words += [(s.time_s, s.sockets) for s in snapshots(live, node)[-1:]]
    if not words:
        return (), 0.0
    time_s, rows = max(words, key=lambda word: word[0])
    newest_s = max([time_s, *([status.time_s] if status is not None else [])])
    age_s = newest_s - time_s + live.heard_s.get(node, 0.0)
    return (rows, age_s) if age_s <= MAX_AGE_S else ((), age_s)


def snapshots(live: Live, node: int) -> list[NodeStatus]:
    """Words of a node that tell of its sockets, of this attempt, oldest first."""
    status = live.statuses.get(node)
    if status is None:
        return []
    words = [s for s in live.history.get(node, ()) if s.sockets and s.attempt == status.attempt]
    if status.sockets and (not words or words[-1].time_s < status.time_s):
        words.append(status)
    return words


def key(row: SocketRow) -> Key:
    """What names a connection, from this end."""
    return plain(row.local), row.local_port, plain(row.remote), row.remote_port


def mirror(name: Key) -> Key:
    """The same connection from the other end."""
    return name[2], name[3], name[0], name[1]


def silent_nodes(live: Live) -> frozenset[int]:
    """Nodes whose agents do not speak any more, though their connection was not closed in order."""
    return frozenset(n for n in live.statuses if n in live.lost or live.heard_s.get(n, 0.0) > SILENT_S)


def has_silent_agent(live: Live, node: int) -> bool:
    """Whether a silent node's kernel answers on the very connection on which its agent says nothing: the agent does not
    run, and no path is broken."""
    if node in live.lost:
        return live.lost[node].reason is LossReason.AGENT_SILENT
    return node in live.answering


def closed(live: Live, node: int) -> bool:
    """Whether the connection of a node's agent was closed: then its host answered, and a process ended."""
    return node in live.lost and not live.lost[node].is_silent


def stuck_ends(live: Live) -> tuple[Stuck, ...]:
    """Every end of a connection between two nodes whose data goes unanswered, in the order of nodes."""
    book = address_book(live)
    rows = {n: newest_sockets(live, n) for n in sorted(live.statuses)}
    ends: Mapping[Key, tuple[SocketRow, float]] = {key(r): (r, age) for found, age in rows.values() for r in found}
    stuck = []
    for node, (found, age_s) in rows.items():
        for row in found:
            if is_unanswered(row) and book.get(plain(row.remote), node) != node:
                for_s = age_s + (row.last_received_s or 0.0)
                peer, peer_age_s = ends.get(mirror(key(row)), (None, 0.0))
                if peer_age_s > for_s - AFTER_S:
                    peer = None  # as it was before
                other, way = book[plain(row.remote)], _way(row, peer)
                if way is Way.ANSWER_LOST and peer is not None and peer.segments_received is not None:
                    arrives = _arrives_now(live, node, other, key(row), for_s)
                    way = Way.UNKNOWN if arrives is None else Way.ANSWER_LOST if arrives else Way.LOST
                hears = _came_since(row)
                if hears and way is Way.UNKNOWN:
                    way = Way.LOST  # what came carries the acknowledgement of all that had arrived there
                stuck.append(Stuck(src=node, dst=other, row=row, way=way, for_s=for_s, hears=hears))
    return tuple(stuck)


def is_unanswered(row: SocketRow) -> bool:
    """Whether data (or a probe of a closed window) has gone without any answer.

    What comes in and acknowledges nothing of it is no answer: it shows that the way there is the broken one.
    """
    return (
        row.backoff >= UNANSWERED
        and row.state != CONNECTING
        and (row.unacked > 0 or (row.unsent_bytes or 0) > 0 or row.send_queue_bytes > 0)
        and (
            row.last_received_s is None
            or row.last_received_s >= MIN_S
            or (row.backoff >= SURELY and row.unacked > 0 and _came_since(row))
        )
    )


def _came_since(row: SocketRow) -> bool:
    """Whether data came in after the first time-out of what is not acknowledged.

    The time-out doubles with every try: all that have passed took together the present one less the first.
    """
    if row.rto_s is None or row.last_received_s is None or row.backoff < UNANSWERED:
        return False
    return row.last_received_s < row.rto_s * (1 - 0.5**row.backoff) - CAME_MARGIN_S


def _way(row: SocketRow, peer: SocketRow | None) -> Way:
    if peer is None or peer.bytes_received is None or row.bytes_acked is None:
        return Way.UNKNOWN
    # The side that connected counts its first packet as one byte acknowledged, and an end of stream is one received.
    closing = 0 if row.state == "ESTABLISHED" and peer.state == "ESTABLISHED" else 1
    return Way.ANSWER_LOST if peer.bytes_received > row.bytes_acked + closing else Way.LOST


def _arrives_now(live: Live, src: int, dst: int, name: Key, for_s: float) -> bool | None:
    """Whether all that is sent again and again still reaches the other end; None where no two samples tell yet, or
    where some of it does, as on a path that loses packets at random.

    That data arrived once and its answer did not is no proof: a path may break one way and, a moment later, the other.
    """
    begin_s = live.now_s - for_s + AFTER_S
    sent = [(t, row.total_retransmits) for t, row in _samples(live, src, name) if t >= begin_s]
    end_s = max((t for t, _ in sent), default=begin_s)  # what arrived after this sample may be acknowledged by now
    got = [
        (t, n) for t, row in _samples(live, dst, mirror(name)) if begin_s <= t <= end_s and (n := row.segments_received)
    ]
    if not got:
        return None
    last_s, last = got[-1]
    for before_s, before in reversed(got[:-1]):
        tries = [n for t, n in sent if before_s <= t <= last_s]
        if len(tries) > 1 and tries[-1] > tries[0]:
            return None if before < last < before + tries[-1] - tries[0] else last > before
    return None


def _samples(live: Live, node: int, name: Key) -> list[tuple[float, SocketRow]]:
    """One connection in every sample, by time on node 0's clock."""
    status = live.statuses[node]
    words = [(s.time_s, s.sockets) for s in snapshots(live, node)]
    answer = live.evidence.get(node)
    if answer is not None and answer.sockets:
        words.append((answer.time_s, answer.sockets))
    found = ((status.by_node_0(time_s), row) for time_s, rows in words for row in rows if key(row) == name)
    return sorted(found, key=lambda w: w[0])


TRY_S = 1.0
"""Between a try and the word of it."""


def reached(live: Live, since_s: float) -> dict[tuple[int, int], bool]:
    """(from node, to node) -> whether something answered there when the agents tried, as far as they did.

    Args:
        since_s: node 0's clock: an answer before that says nothing of now.
    """
    book = address_book(live)
    found: dict[tuple[int, int], bool] = {}
    for node, answer in live.evidence.items():
        status = live.statuses.get(node)
        time_s = answer.time_s if answer.reached_s is None else answer.reached_s
        is_new = (time_s if status is None else status.by_node_0(time_s)) >= since_s + TRY_S
        for address, ok in answer.reached.items():
            other = book.get(plain(address))
            if other is not None and other != node and (is_new or not ok):
                found[node, other] = found.get((node, other), False) or ok
    return found
