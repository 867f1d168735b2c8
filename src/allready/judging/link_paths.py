"""What is broken between the nodes, from both ends of the connections that go unanswered."""

from collections.abc import Iterable

from msgspec import Struct

from allready.judging.analysis import Analysis
from allready.judging.link_ends import (
    AFTER_S,
    SURELY,
    TOGETHER_S,
    Stuck,
    Way,
    address_book,
    closed,
    has_silent_agent,
    newest_sockets,
    plain,
    reached,
    silent_nodes,
    snapshots,
    stuck_ends,
)
from allready.judging.link_idle import is_stale, is_undecided
from allready.judging.stated import said
from allready.model import Live, PathSize, Phrase
from allready.model.fill import joined, named_by


def down_links(live: Live, node: int) -> tuple[str, ...]:
    """Interfaces of a node that had a carrier within the last half minute and have none now, or that carried data and
    are down."""
    status = live.statuses.get(node)
    if status is None:
        return ()
    words = [s for s in (*live.history.get(node, ()), status) if s.attempt == status.attempt and s.links]
    before = {link.name for s in words for link in s.links if link.is_up and link.has_carrier}
    samples = [(s.time_s, s.links) for s in words]  # most words tell of no interface
    answer = live.evidence.get(node)
    if answer is not None and answer.links:
        samples.append((answer.time_s, answer.links))
    newest = max(samples, key=lambda sample: sample[0])[1] if samples else ()
    return tuple(link.name for link in newest if not (link.is_up and link.has_carrier) and link.name in before)


class Broken(Struct, frozen=True, kw_only=True):
    """Which paths are broken, and who is at fault.

    kind: "down" (an interface of `nodes` lost its link), "cut off" (nothing is received from `nodes`, or nothing that
    they have with several others is answered), "pair" (`links`, both ways or unknown), "one way" (`links`: exactly
    these directions), "long" (short packets pass, long ones do not: `links`, and `nodes` where all of them have one
    end).
    """

    kind: str
    stuck: tuple[Stuck, ...]
    nodes: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    interfaces: tuple[Phrase, ...] = ()
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


def broken(case: Analysis) -> Broken | None:
    """What is broken between the nodes; None while no data is stuck.  The same answer for every rule that asks."""
    return broken_in(case.live) if case.live is not None else None


def broken_in(live: Live) -> Broken | None:
    """What is broken between the nodes of a job; None while no data is stuck."""
    stuck = tuple(s for s in stuck_ends(live) if not is_stale(live, s) and not is_undecided(live, s))
    if not stuck:
        return _own_link(live) or _unreached(live)
    pairs = {(min(s.src, s.dst), max(s.src, s.dst)) for s in stuck}
    touched = {n for pair in pairs for n in pair}
    down = {n: links for n in sorted(touched) if (links := down_links(live, n))}
    if down and all(down.keys() & set(pair) for pair in pairs):
        names = tuple(_interface(link, n) for n, links in down.items() for link in links)
        return Broken(kind="down", stuck=stuck, nodes=tuple(down), interfaces=names)
    holes = _holes(live, stuck)
    if holes:
        every = {way for way, size in path_sizes(live).items() if size.lost_bytes is not None}
        nodes = _common_end({(min(a, b), max(a, b)) for a, b in every}, len(live.statuses))
        return Broken(kind="long", stuck=stuck, nodes=nodes, links=tuple(sorted(holes)))
    silent = silent_nodes(live)
    for_s = max(s.for_s for s in stuck)
    if any(n not in silent and live.heard_s.get(n, 0.0) > for_s - AFTER_S for n in touched):
        # nothing was received from it since: in a moment it is known whether the node or only a path is gone
        return None
    # Its packets may still come in: then its silence is older than the last of them.
    gone_s = max([for_s, *(live.heard_s.get(n, 0.0) for n in silent & touched)])
    reach = reached(live, live.now_s - gone_s)
    nodes = _silent_culprits(live, pairs, silent) or _common_end(pairs, len(live.statuses))
    if nodes and not any(reach.get((a, b)) for a, b in reach if b in nodes and a not in nodes):
        return Broken(kind="cut off", stuck=stuck, nodes=nodes, is_silent=bool(silent))
    reaching = {a for (a, _), ok in reach.items() if ok}  # what another one does not reach may be its own fault
    pairs |= {(min(a, b), max(a, b)) for (a, b), ok in reach.items() if not ok and touched & {a, b} and a in reaching}
    # That data arrives without its answer proves that its way works; data that is lost says nothing of the way back.
    proven = frozenset[tuple[int, int]]().union(*(s.broken for s in stuck))
    works = {(s.src, s.dst) for s in stuck if s.way is Way.ANSWER_LOST} | {(s.dst, s.src) for s in stuck if s.hears}
    ways = {(a, b): {way for way in ((a, b), (b, a)) if way not in works} for a, b in pairs}
    if proven and all(len(found) == 1 for found in ways.values()):
        return Broken(kind="one way", stuck=stuck, links=tuple(sorted(way for found in ways.values() for way in found)))
    both = {way for known in ways.values() for way in known}
    if not both:
        return None  # each hears the other: packets are lost here and there, and no way is gone
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


def _interface(name: str, node: int) -> Phrase:
    return said("{interface} of node {node}", interface=name, node=node)


def _own_link(live: Live) -> Broken | None:
    """A node that reports, has lost the link of an interface, and is connected only to nodes that are silent."""
    silent, book = silent_nodes(live), address_book(live)
    for node in sorted(live.statuses):
        names = tuple(name for name in down_links(live, node) if _carried_most(live, node, name))
        peers = {book.get(plain(row.remote), node) for row in newest_sockets(live, node)[0]} - {node}
        if names and node not in silent and peers and peers <= silent and not any(closed(live, n) for n in peers):
            return Broken(
                kind="down",
                stuck=(),
                nodes=(node,),
                interfaces=tuple(_interface(name, node) for name in names),
                is_silent=True,
                seconds=min(live.heard_s.get(n, 0.0) for n in peers),
            )
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
        for link in words[-1]
        if link.name in first and link.name != "lo"
    }
    return took.get(name, 0) >= max(took.values(), default=0)


def _unreached(live: Live) -> Broken | None:
    """Nodes that are silent and not reached while the job stands: all that is under way may lie on their side."""
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
    asked = {b for _, b in tries}
    silent = frozenset(n for n in silent if n in asked or not has_silent_agent(live, n))
    if not silent:
        return None
    since_s = min(live.heard_s.get(n, 0.0) for n in silent)
    moved = [
        live.statuses[n].by_node_0(g.moved_s)
        for n in heard
        for r in live.statuses[n].ranks
        for g in r.groups
        if g.moved_s is not None
    ]
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
"""A node that no node tried to reach must be silent for so long, and the job must stand since then."""


def _silent_culprits(live: Live, pairs: Iterable[tuple[int, int]], silent: frozenset[int]) -> tuple[int, ...]:
    """Nodes that do not report and to which every stuck connection leads; of two nodes it cannot be known which."""
    num_nodes = len(live.statuses)
    if not silent or num_nodes < 3:
        return ()
    if 0 in live.statuses and 0 not in silent and len(silent) == num_nodes - 1:
        return (0,) if all(0 in pair for pair in pairs) else ()  # it is node 0 that receives nothing
    ends = {n for pair in pairs for n in pair}
    touched = silent & ends
    if not touched or not all(silent & set(pair) for pair in pairs):
        return ()
    since = [live.heard_s.get(n, 0.0) for n in touched]
    also = {n for n in silent - ends if min(since) - TOGETHER_S <= live.heard_s.get(n, 0.0) <= max(since) + TOGETHER_S}
    return tuple(sorted(touched | also))


def _common_end(pairs: Iterable[tuple[int, int]], num_nodes: int) -> tuple[int, ...]:
    """The node that is an end of all stuck connections, to two others at least."""
    found = list(pairs)
    common = set.intersection(*(set(pair) for pair in found))
    return tuple(common) if len(found) > 1 and len(common) == 1 and num_nodes > 2 else ()


def node_name(live: Live, node: int) -> str:
    """`node 2 (gpu02)`."""
    return named_by(said("node {node}", node=node_label(live, node)))


def node_label(live: Live, node: int) -> str:
    """`2 (gpu02)`, as a place of a remedy."""
    status = live.statuses.get(node)
    return f"{node} ({status.name})" if status is not None and status.name else f"{node}"


def names(live: Live, nodes: Iterable[int]) -> str:
    """Several of them, the first eight."""
    found = sorted(set(nodes))
    return joined([*(node_name(live, n) for n in found[:8]), *(["…"] if len(found) > 8 else [])])


def arrows(links: Iterable[tuple[int, int]]) -> str:
    """`1 -> 2, 2 -> 1`."""
    found = sorted(links)
    return ", ".join(f"{a} -> {b}" for a, b in found[:8]) + (", …" if len(found) > 8 else "")
