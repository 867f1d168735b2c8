"""Connections between nodes that go unanswered, from both of their ends.

Only data that is on its way accuses: a connection that is idle says nothing of its path.  A process that is stopped or
busy answers all the same, since its kernel does; a process that ended has its connections closed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from allready.model import Live, NodeStatus, PathSize, SocketRow
from allready.rules._common import is_loopback, parse
from allready.rules._live import SILENT_S

UNANSWERED = 2
"""Time-outs in a row without an answer.  On a path that loses one packet of twenty, this and the packet itself and the
kernel's early probe are lost together once in 160,000 times; on a good one never.  It takes 0.6 s."""
SURELY = 3
LEAST_S = 1.0
"""And nothing else came from the other end for so long."""
MOST_AGE_S = 10.0
"""Older words about sockets are not asked."""
TOGETHER_S = 3.0
CAME_MARGIN_S = 0.2
"""Clocks of the kernel are coarse, and a first packet may have been lost by itself."""
AFTER_S = 0.3
"""What was seen so shortly after the last data may still be from before."""
CONNECTING = "SYN_SENT"

Key = tuple[str, int, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """One end of a connection whose data is not acknowledged.

    way: "lost" (the data does not arrive at the other end), "answer lost" (it does, again and again, so the way back is
    broken), "unknown" (too little is known of the other end since).
    `for_s`: since the last data came from there, until now.  `hears`: data of the other end came after this one's had
    begun to go unanswered, so that the way from there works.
    """

    src: int
    dst: int
    row: SocketRow
    way: str
    for_s: float
    hears: bool = False

    @property
    def broken(self) -> frozenset[tuple[int, int]]:
        """Directions that this proves to be broken; none when the other end is not known."""
        if self.way == "unknown":
            return frozenset()
        return frozenset({(self.src, self.dst) if self.way == "lost" else (self.dst, self.src)})


def address_book(live: Live) -> dict[str, int]:
    """Address -> node, without those that several nodes have (docker0) and loopback.

    The near end of a node's own connections is an address of that node, also where nobody told its addresses.
    """
    found: dict[str, set[int]] = {}
    told = {n: set(a) for n, a in live.addresses.items()}
    for node, answer in live.evidence.items():
        told.setdefault(node, set()).update(answer.addresses, (row.local for row in answer.sockets))
    for node in live.statuses:
        for status in snapshots(live, node)[-1:]:
            told.setdefault(node, set()).update(row.local for row in status.sockets)
    for node, addresses in told.items():
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
    return (rows, age_s) if age_s <= MOST_AGE_S else ((), age_s)


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


def closed(live: Live, node: int) -> bool:
    """Whether the connection of a node's agent was closed: then its host answered, and a process ended."""
    return node in live.lost and not live.lost[node].startswith("no sign of life")


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
                if way == "answer lost" and peer is not None and peer.segments_received is not None:
                    arrives = _arrives_now(live, node, other, key(row), for_s)
                    way = "unknown" if arrives is None else "answer lost" if arrives else "lost"
                hears = _came_since(row)
                if hears and way == "unknown":
                    way = "lost"  # what came carries the acknowledgement of all that had arrived there
                stuck.append(Stuck(src=node, dst=other, row=row, way=way, for_s=for_s, hears=hears))
    return tuple(stuck)


def is_unanswered(row: SocketRow) -> bool:
    """Whether data (or a probe of a closed window) has gone without any answer."""
    return (
        row.backoff >= UNANSWERED
        and row.state != CONNECTING
        and (row.unacked > 0 or (row.unsent_bytes or 0) > 0 or row.send_queue_bytes > 0)
        and (row.last_received_s is None or row.last_received_s >= LEAST_S)
    )


def _came_since(row: SocketRow) -> bool:
    """Whether data came in after the first time-out of what is not acknowledged.

    The time-out doubles with every try: all that have passed took together the present one less the first.
    """
    if row.rto_s is None or row.last_received_s is None or row.backoff < UNANSWERED:
        return False
    return row.last_received_s < row.rto_s * (1 - 0.5**row.backoff) - CAME_MARGIN_S


def _way(row: SocketRow, peer: SocketRow | None) -> str:
    if peer is None or peer.bytes_received is None or row.bytes_acked is None:
        return "unknown"
    # The side that connected counts its first packet as one byte acknowledged, and an end of stream is one received.
    closing = 0 if row.state == "ESTABLISHED" and peer.state == "ESTABLISHED" else 1
    return "answer lost" if peer.bytes_received > row.bytes_acked + closing else "lost"


def _arrives_now(live: Live, src: int, dst: int, name: Key, for_s: float) -> bool | None:
    """Whether what is sent again and again still reaches the other end; None where no two looks tell yet.

    That data arrived once and its answer did not is no proof: a path may break one way and, a moment later, the other.
    """
    begin_s = live.now_s - for_s + AFTER_S
    sent = [(t, row.total_retransmits) for t, row in _looks(live, src, name) if t >= begin_s]
    got = [(t, n) for t, row in _looks(live, dst, mirror(name)) if t >= begin_s and (n := row.segments_received)]
    if not got:
        return None
    last_s, last = got[-1]
    for before_s, before in reversed(got[:-1]):
        tries = [n for t, n in sent if before_s <= t <= last_s]
        if len(tries) > 1 and tries[-1] > tries[0]:
            return last > before
    return None


def _looks(live: Live, node: int, name: Key) -> list[tuple[float, SocketRow]]:
    """One connection at every look at it, by time on node 0's clock."""
    offset_s = live.statuses[node].clock_offset_s
    words = [(s.time_s, s.sockets) for s in snapshots(live, node)]
    answer = live.evidence.get(node)
    if answer is not None and answer.sockets:
        words.append((answer.time_s, answer.sockets))
    return sorted(
        ((time_s - offset_s, row) for time_s, rows in words for row in rows if key(row) == name), key=lambda w: w[0]
    )


def down_links(live: Live, node: int) -> tuple[str, ...]:
    """Interfaces of a node that had a carrier within the last half minute and have none now, or that carried data and
    are down."""
    status = live.statuses.get(node)
    if status is None:
        return ()
    answer = live.evidence.get(node)
    newest = answer.links if answer is not None and answer.links and answer.time_s >= status.time_s else status.links
    before = {
        link.name for s in live.history.get(node, ()) if s.attempt == status.attempt for link in s.links
        if link.is_up and link.has_carrier
    }  # fmt: skip
    return tuple(link.name for link in newest if not (link.is_up and link.has_carrier) and link.name in before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """Which paths are broken, and who is at fault.

    kind: "down" (an interface of `nodes` lost its link), "cut off" (nothing of `nodes` is heard, or nothing that they
    have with several others is answered), "pair" (`links`, both ways or unknown), "one way" (`links`: exactly these
    directions), "long" (short packets pass, long ones do not: `links`, and `nodes` where all of them have one end).
    """

    kind: str
    stuck: tuple[Stuck, ...]
    nodes: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    interfaces: tuple[str, ...] = ()
    is_silent: bool = False
    seconds: float = 0.0

    @property
    def is_sure(self) -> bool:
        """Whether more than one kind of evidence, or a long series of time-outs, says so."""
        return bool(self.interfaces) or self.is_silent or any(s.row.backoff >= SURELY for s in self.stuck)

    @property
    def for_s(self) -> float:
        """For how long the first of them has been stuck, as far as is known."""
        return max((s.for_s for s in self.stuck), default=self.seconds)


_last: list[tuple[Live, Broken | None]] = []


def broken(live: Live) -> Broken | None:
    """What is broken between the nodes; None while no data is stuck.  The same answer for every rule that asks."""
    for known, answer in _last:
        if known is live:
            return answer
    answer = _broken(live)
    _last[:] = [(live, answer)]
    return answer


def _broken(live: Live) -> Broken | None:
    stuck = tuple(s for s in stuck_ends(live) if not is_stale(live, s))
    if not stuck:
        return _own_link(live) or _unheard(live)
    pairs = {(min(s.src, s.dst), max(s.src, s.dst)) for s in stuck}
    touched = {n for pair in pairs for n in pair}
    down = {n: links for n in sorted(touched) if (links := down_links(live, n))}
    if down and all(down.keys() & set(pair) for pair in pairs):
        names = tuple(f"{link} of node {n}" for n, links in down.items() for link in links)
        return Broken(kind="down", stuck=stuck, nodes=tuple(down), interfaces=names)
    holes = _holes(live, stuck)
    if holes:
        nodes = _common_end({(min(a, b), max(a, b)) for a, b in holes}, len(live.statuses))
        return Broken(kind="long", stuck=stuck, nodes=nodes, links=tuple(sorted(holes)))
    silent = silent_nodes(live)
    for_s = max(s.for_s for s in stuck)
    if any(n not in silent and live.heard_s.get(n, 0.0) > for_s - AFTER_S for n in touched):
        return None  # nothing was heard of it since: in a moment it is known whether the node or only a path is gone
    # Its packets may still come in: then its silence is older than the last of them.
    gone_s = max([for_s, *(live.heard_s.get(n, 0.0) for n in silent & touched)])
    reach = reached(live, live.now_s - gone_s)
    nodes = _silent_culprits(live, pairs, silent) or _common_end(pairs, len(live.statuses))
    if nodes and not any(reach.get((a, b)) for a, b in reach if b in nodes and a not in nodes):
        return Broken(kind="cut off", stuck=stuck, nodes=nodes, is_silent=bool(silent))
    pairs |= {
        (min(a, b), max(a, b)) for (a, b), ok in reach.items() if not ok and touched & {a, b} and _reaches_any(reach, a)
    }
    # That data arrives without its answer proves that its way works; data that is lost says nothing of the way back.
    proven = frozenset[tuple[int, int]]().union(*(s.broken for s in stuck))
    works = {(s.src, s.dst) for s in stuck if s.way == "answer lost"} | {(s.dst, s.src) for s in stuck if s.hears}
    ways = {(a, b): {way for way in ((a, b), (b, a)) if way not in works} for a, b in pairs}
    if proven and all(len(found) == 1 for found in ways.values()):
        return Broken(kind="one way", stuck=stuck, links=tuple(sorted(way for found in ways.values() for way in found)))
    both = {way for known in ways.values() for way in known}
    return Broken(kind="pair", stuck=stuck, links=tuple(sorted(both)), is_silent=bool(silent & touched))


def path_sizes(live: Live) -> dict[tuple[int, int], PathSize]:
    """(from node, to node) -> how long packets may be that get an answer there, as far as agents asked."""
    book = address_book(live)
    return {
        (node, other): size
        for node, answer in live.evidence.items()
        for address, size in answer.path_sizes.items()
        if (other := book.get(plain(address))) is not None and other != node
    }


def _holes(live: Live, stuck: Iterable[Stuck]) -> set[tuple[int, int]]:
    """Directions of stuck data in which short packets are answered and long ones are not; none if any is stuck on a way
    that lets all packets pass."""
    sizes = path_sizes(live)
    ways = {(s.src, s.dst) for s in stuck} & sizes.keys()
    return ways if all(sizes[way].lost_bytes is not None for way in ways) else set()


def _own_link(live: Live) -> Broken | None:
    """A node that is heard, has lost the link of an interface, and is connected to nobody but nodes that are silent."""
    silent, book = silent_nodes(live), address_book(live)
    for node in sorted(live.statuses):
        names = tuple(name for name in down_links(live, node) if _carried_most(live, node, name))
        peers = {book.get(plain(row.remote), node) for row in newest_sockets(live, node)[0]} - {node}
        if names and node not in silent and peers and peers <= silent and not any(closed(live, n) for n in peers):
            return Broken(
                kind="down", stuck=(), nodes=(node,), interfaces=tuple(f"{name} of node {node}" for name in names),
                is_silent=True, seconds=min(live.heard_s.get(n, 0.0) for n in peers),
            )  # fmt: skip
    return None


def _carried_most(live: Live, node: int, name: str) -> bool:
    """Whether no other interface of the node, loopback left out, took more bytes lately: docker0 that goes down at the
    same time is not what the job used."""
    words = [s.links for s in snapshots(live, node) if s.links]
    if not words:
        return False
    first = {link.name: link for link in words[0]}
    took = {
        link.name: link.sent_bytes + link.received_bytes - first[link.name].sent_bytes - first[link.name].received_bytes
        for link in words[-1] if link.name in first and link.name != "lo"
    }  # fmt: skip
    return took.get(name, 0) >= max(took.values(), default=0)


def _unheard(live: Live) -> Broken | None:
    """Nodes that are neither heard nor reached while the job stands: all that is under way may lie on their side."""
    silent = silent_nodes(live)
    heard = [n for n in live.statuses if n not in silent]
    if not silent or not heard or live.since_s is None or any(closed(live, n) for n in silent):
        return None
    if any(live.heard_s.get(n, 0.0) > NEARLY_SILENT_S for n in heard if n != 0):
        return None  # who speaks every second and is overdue may be silent as well in a moment
    reach = reached(live, live.now_s - min(live.heard_s.get(n, 0.0) for n in silent))
    tries = {(a, b): ok for (a, b), ok in reach.items() if a in heard and b in silent}
    if any(tries.values()):
        return None  # its kernel answers: the agent is slow, or cut off from node 0 only
    since_s = min(live.heard_s.get(n, 0.0) for n in silent)
    moved = [
        g.moved_s - live.statuses[n].clock_offset_s
        for n in heard for r in live.statuses[n].ranks for g in r.groups if g.moved_s is not None
    ]  # fmt: skip
    stands_s = live.now_s - max(moved, default=live.now_s)
    if stands_s < since_s - TOGETHER_S or (not tries and since_s < UNREACHED_S):
        return None  # the job went on without it for a while
    if len(live.statuses) < 3:
        [other] = silent
        return Broken(
            kind="pair", stuck=(), links=((heard[0], other), (other, heard[0])), is_silent=bool(tries), seconds=since_s
        )
    nodes = (0,) if silent == frozenset(live.statuses) - {0} else tuple(sorted(silent))
    return Broken(kind="cut off", stuck=(), nodes=nodes, is_silent=bool(tries), seconds=since_s)


NEARLY_SILENT_S = 1.6
UNREACHED_S = 4.0
"""A node that nobody tried to reach must be silent for so long, and the job must stand since then."""


def _silent_culprits(live: Live, pairs: Iterable[tuple[int, int]], silent: frozenset[int]) -> tuple[int, ...]:
    """Nodes that are not heard and to which every stuck connection leads; of two nodes nobody can tell which."""
    num_nodes = len(live.statuses)
    if not silent or num_nodes < 3:
        return ()
    if 0 in live.statuses and 0 not in silent and len(silent) == num_nodes - 1:
        return (0,) if all(0 in pair for pair in pairs) else ()  # it is node 0 that hears nobody
    ends = {n for pair in pairs for n in pair}
    touched = silent & ends
    if not touched or not all(silent & set(pair) for pair in pairs):
        return ()
    since = [live.heard_s.get(n, 0.0) for n in touched]
    also = {n for n in silent - ends if min(since) - TOGETHER_S <= live.heard_s.get(n, 0.0) <= max(since) + TOGETHER_S}
    return tuple(sorted(touched | also))


TRY_S = 1.0
"""Between a try and the word of it."""


def reached(live: Live, since_s: float) -> dict[tuple[int, int], bool]:
    """(from node, to node) -> whether something answered there when the agents tried, as far as they did.

    Args:
        live: what is known.
        since_s: node 0's clock: an answer before that says nothing of now.
    """
    book = address_book(live)
    found: dict[tuple[int, int], bool] = {}
    for node, answer in live.evidence.items():
        status = live.statuses.get(node)
        time_s = answer.time_s if answer.reached_s is None else answer.reached_s
        is_new = time_s - (status.clock_offset_s if status is not None else 0.0) >= since_s + TRY_S
        for address, ok in answer.reached.items():
            other = book.get(plain(address))
            if other is not None and other != node and (is_new or not ok):
                found[node, other] = found.get((node, other), False) or ok
    return found


def _reaches_any(reach: Mapping[tuple[int, int], bool], node: int) -> bool:
    """Whether the node reaches others, so that what it does not reach is not its own fault."""
    return any(ok for (a, _), ok in reach.items() if a == node)


def _common_end(pairs: Iterable[tuple[int, int]], num_nodes: int) -> tuple[int, ...]:
    """The node that is an end of all stuck connections, to two others at least."""
    found = list(pairs)
    common = set.intersection(*(set(pair) for pair in found))
    return tuple(common) if len(found) > 1 and len(common) == 1 and num_nodes > 2 else ()


def is_stale(live: Live, end: Stuck) -> bool:
    """Whether this one connection was dropped by something that forgets idle ones, while its path works."""
    idle = idle_before_s(end.row)
    return idle is not None and idle >= IDLE_S and bool(alive_beside(live, end))


IDLE_S = 55.0
"""The shortest time after which middle boxes are known to forget a connection is one minute."""


def idle_before_s(row: SocketRow) -> float | None:
    """For how long nothing came on a connection before its data began to go unanswered, at least."""
    if row.last_received_s is None or row.rto_s is None:
        return None
    # The time-out has doubled with every try, so all tries together took less than twice the present one.
    return max(0.0, row.last_received_s - 2 * row.rto_s - LEAST_S)


def alive_beside(live: Live, end: Stuck) -> tuple[SocketRow, ...]:
    """Other connections between the same two nodes that got data since this one's began to go unanswered."""
    since = 2 * (end.row.rto_s or 0.0) + LEAST_S
    book = address_book(live)
    return tuple(
        row
        for row in newest_sockets(live, end.src)[0]
        if key(row) != key(end.row)
        and book.get(plain(row.remote)) == end.dst
        and row.backoff == 0
        and row.last_received_s is not None
        and row.last_received_s < since
    )


def node_name(live: Live, node: int) -> str:
    """`node 2 (gpu02)`; neutral enough for every language."""
    status = live.statuses.get(node)
    return f"node {node} ({status.name})" if status is not None and status.name else f"node {node}"


def names(live: Live, nodes: Iterable[int]) -> str:
    """Several of them, the first eight."""
    found = sorted(set(nodes))
    return ", ".join(node_name(live, n) for n in found[:8]) + (", …" if len(found) > 8 else "")


def arrows(links: Iterable[tuple[int, int]]) -> str:
    """`1 -> 2, 2 -> 1`."""
    found = sorted(links)
    return ", ".join(f"{a} -> {b}" for a, b in found[:8]) + (", …" if len(found) > 8 else "")
