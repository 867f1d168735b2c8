"""How data flows between nodes: rate, time with data in flight, round trips and losses, per direction and pair.

Derived from the kernel's counters in samples two seconds apart.  A path that is slow is the one whose senders always
have data in flight while all other senders are mostly idle, waiting for what comes over the slow one.

Counters between two samples mix the time before and after a change, of one path more than of another where the paths
changed one after the other.  So a path is accused of what holds in two parts of the time that do not overlap: at most
one of them has the change in it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from allready.judging.analysis import Analysis
from allready.judging.link_ends import address_book, key, plain, snapshots
from allready.judging.link_paths import arrows, names, node_label
from allready.judging.stated import stated
from allready.model import Evidence, Live, NodeStatus, SocketRow

MIN_S = 1.5
SURE_S = 3.5
MAX_S = 6.5
"""Agents report sockets every two seconds: four samples, and none from before a fault that is seven seconds old."""
BULK = 0.05
"""Paths with less than this share of the busiest path's bytes carry control messages, not data: their rate is noise."""
MIN_BYTES = 50_000
SLOWER = 1.5
"""Factor between the fastest slow path and the slowest of the others; a link of half the speed makes 2."""
LOST_TIME = 0.2
"""Share of the time that the job would not wait if the slow path was as fast as the others."""
BUSY = 0.25
LONGER_S = 0.0008
LONGER = 3.0
"""A path is slow only if packets also take longer there, by factor and by time: else the sender itself is slow."""
UNSTEADY = 0.75
"""Share of its mean by which a path's round trips differ from each other, above which a few of them were late and the
path is not slow: a receiver that has nothing to send may put off an acknowledgement by 40 ms.  Behind a full queue all
take long: 0.1 to 0.45 was seen on links of 30 Mbit/s, and 1 to 2 in loops of short messages on fast ones."""
SEGMENT_BYTES = 1448
LOSS = 0.005
"""Share of lost segments.  On healthy Ethernet it is far below 0.0001; loops of short messages on a busy
machine repeat up to five of a thousand for no reason, on all paths alike, when the kernel's early probe was too early.
"""
MIN_LOST = 15
MIN_LOST_IN_HALF = 4
"""A change (a queue that gets shorter, a link that slows) loses a handful of segments once."""
MORE_LOST = 3.0
FULL = 0.8
"""Share of the time in which a path that the job fills has data in flight.  Where all paths are full and as fast as
each other, their own queues overflow and delay acknowledgements: which of them repeats most is chance, and costs none.
"""
TOGETHER_S = 1.0
"""Nodes sample their sockets at the same moments of the clock, every two seconds; a sample that not all have sent yet
is not compared."""
CONTENTION = 0.2
"""Share of ten seconds in which some process of the node waited for a processor (PSI)."""


class Flow(Struct, kw_only=True):
    """One direction between two nodes, all connections together, during `seconds`.

    `num_needless`: retransmissions of what had arrived, where `is_loss_known`; else they cannot be distinguished from
    losses. `busy`: share of the time in which data was in flight that the receiver had room for; `rtt_s`: of the
    connection that carried most, at the median sample; `unsteady`: the variation of its round trips as a share of them.
    """

    src: int
    dst: int
    seconds: float = 0.0
    sent_bytes: int = 0
    busy: float = 0.0
    num_retransmits: int = 0
    num_needless: int = 0
    is_loss_known: bool = True
    num_segments: int = 0
    rtt_s: float = 0.0
    unsteady: float = 0.0
    most_bytes: int = -1

    @property
    def ends(self) -> set[int]:
        """Both nodes."""
        return {self.src, self.dst}

    @property
    def rate_bit_per_s(self) -> float:
        """While data was in flight."""
        return self.sent_bytes * 8 / max(self.busy * self.seconds, 1e-3)

    @property
    def loss(self) -> float:
        """Share of segments that got lost, as far as they can be distinguished from those retransmitted without
        need."""
        return self.num_lost / self.num_segments if self.num_segments else 0.0

    @property
    def num_lost(self) -> int:
        """Retransmitted segments that had not arrived."""
        return max(0, self.num_retransmits - self.num_needless)

    def add(self, rows: Sequence[SocketRow], seconds: float) -> None:
        """Count what one connection carried between the first and the last sample of it."""
        before, now = rows[0], rows[-1]
        if None in {before.bytes_acked, now.bytes_acked, before.busy_s, now.busy_s}:
            return
        sent = (now.bytes_acked or 0) - (before.bytes_acked or 0)
        busy_s = (now.busy_s or 0.0) - (before.busy_s or 0.0)
        if sent < 0 or busy_s < 0:
            return  # another connection that got the same ports
        full_s = (now.receiver_limited_s or 0.0) - (before.receiver_limited_s or 0.0)
        self.seconds = max(self.seconds, seconds)
        self.sent_bytes += sent
        self.busy = max(self.busy, min(1.0, max(0.0, (busy_s - max(0.0, full_s)) / seconds)))
        self.num_retransmits += max(0, now.total_retransmits - before.total_retransmits)
        if before.needless_retransmits is None or now.needless_retransmits is None:
            self.is_loss_known = False
        else:
            self.num_needless += max(0, now.needless_retransmits - before.needless_retransmits)
        self.num_segments += -(-sent // SEGMENT_BYTES)
        rtts = [(r.rtt_s, r.rtt_variation_s or 0.0) for r in rows if r.rtt_s]
        if rtts and sent > self.most_bytes:
            self.most_bytes, self.rtt_s = sent, median(rtt for rtt, _ in rtts)
            self.unsteady = median(variation / rtt for rtt, variation in rtts)


Flows = dict[tuple[int, int], Flow]


class BadPath(Struct, frozen=True, kw_only=True):
    """Where data flows slowly, or segments get lost, beside the other paths.

    `nodes` has the one node whose link it is, or is empty when only `links` are known.  `cost`: share of the time that
    is lost by a slow one.  A link that is slow in one direction shows in `flows` of both, since acknowledgements wait
    in the same queue as data.  `is_steady`: the same holds in both parts of the time.
    """

    flows: tuple[Flow, ...]
    others: tuple[Flow, ...]
    nodes: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    cost: float = 0.0
    is_steady: bool = False

    @property
    def ends(self) -> set[int]:
        """The nodes at either end of it."""
        return {*self.nodes, *(n for link in self.links for n in link)}

    @property
    def is_sure(self) -> bool:
        """Whether it was measured for long enough, and the paths compared so in each part of that time."""
        return self.is_steady and min(f.seconds for f in self.flows) >= SURE_S

    @property
    def mbit_per_s(self) -> tuple[float, float]:
        """Of these paths and of the others, at the median."""
        here, others = (median(f.rate_bit_per_s for f in flows) / 1e6 for flows in (self.flows, self.others))
        return here, others

    @property
    def loss(self) -> tuple[float, float]:
        """Share of lost segments of these paths and of the others."""
        here, others = (
            sum(f.num_lost for f in flows) / max(1, sum(f.num_segments for f in flows))
            for flows in (self.flows, self.others)
        )
        return here, others

    def where(self, live: Live) -> str:
        """The node, or the directions."""
        return names(live, self.nodes) if self.nodes else arrows(self.links)

    def place(self, live: Live) -> str:
        """One node at which the link can be examined."""
        return node_label(live, self.nodes[0] if self.nodes else self.flows[0].src)

    def has_cpu_contention(self, live: Live) -> bool:
        """Whether a node at either end has too few CPUs: then acknowledgements come late, and paths seem slow."""
        nodes = live.statuses.keys() & set().union(*(f.ends for f in self.flows))
        return any((live.statuses[n].cpu_pressure_share or 0.0) >= CONTENTION for n in nodes)


def flows(case: Analysis) -> Flows:
    """By (from node, to node); only where two samples are far enough apart."""
    return _flows(case.live, lambda samples: samples)


def halves(case: Analysis) -> tuple[Flows, Flows]:
    """The same of the time before the last two seconds, and of these; nothing where only two samples are known."""
    return _flows(case.live, lambda samples: samples[: _middle(samples) + 1]), _flows(
        case.live, lambda samples: samples[_middle(samples) :]
    )


def _middle(samples: Sequence[NodeStatus]) -> int:
    """The place of the newest sample from which on enough is known, 0 if that is none but the first."""
    return max((i for i, s in enumerate(samples) if s.time_s <= samples[-1].time_s - MIN_S), default=0)


def _flows(live: Live | None, part: Callable[[Sequence[NodeStatus]], Sequence[NodeStatus]]) -> Flows:
    if live is None:
        return {}
    book = address_book(live)
    samples = {node: seen for node in sorted(live.statuses) if (seen := snapshots(live, node))}
    all_have_s = min((live.statuses[node].by_node_0(seen[-1].time_s) for node, seen in samples.items()), default=0.0)
    until_s = max(all_have_s, live.now_s - MAX_S) + TOGETHER_S  # who says nothing any more holds up no comparison
    found: Flows = {}
    for node, seen in samples.items():
        until = [s for s in seen if live.statuses[node].by_node_0(s.time_s) <= until_s]
        chosen = part([s for s in until if s.time_s >= until[-1].time_s - MAX_S])
        if len(chosen) < 2:
            continue
        tables = [(s.time_s, {key(row): row for row in s.sockets}) for s in chosen]
        for name, row in tables[-1][1].items():
            other = book.get(plain(row.remote))
            rows = [(time_s, table[name]) for time_s, table in tables if name in table]
            seconds = rows[-1][0] - rows[0][0]
            if other is not None and other != node and seconds >= MIN_S:
                flow = found.setdefault((node, other), Flow(src=node, dst=other))
                flow.add([r for _, r in rows], seconds)
    return found


def bulk(found: Flows) -> list[Flow]:
    """Paths that carry data, the slowest first."""
    least = max(MIN_BYTES, BULK * max((f.sent_bytes for f in found.values()), default=0))
    return sorted((f for f in found.values() if f.sent_bytes >= least), key=lambda f: f.rate_bit_per_s)


def slow_path(case: Analysis, live: Live) -> BadPath | None:
    """The paths that all others wait for, if they are clearly slower than the others; None on any doubt."""
    found = case.of(flows)
    data = bulk(found)
    best: BadPath | None = None
    for cut in range(1, len(data)):
        slow, fast = data[:cut], data[cut:]
        cost = _cost(slow, fast)
        if cost < LOST_TIME or not all(_takes_longer(f, fast) and f.unsteady <= UNSTEADY for f in slow):
            continue
        candidate = _placed(live, found, BadPath(flows=tuple(slow), others=tuple(fast), cost=cost))
        if candidate is not None and (best is None or bool(candidate.nodes) > bool(best.nodes)):
            best = candidate
    return _steady(case, best, lambda slow, fast: _cost(slow, fast) >= LOST_TIME)


def _cost(slow: Sequence[Flow], fast: Sequence[Flow]) -> float:
    """Share of the time that is lost because some paths are clearly slower than the others; 0 where they are not."""
    lowest = min(f.rate_bit_per_s for f in fast)
    if lowest < SLOWER * max(f.rate_bit_per_s for f in slow) or max(f.busy for f in slow) < BUSY:
        return 0.0
    reference = median(f.rate_bit_per_s for f in fast)
    return max(f.busy * (1 - f.rate_bit_per_s / reference) for f in slow)


def _steady(
    case: Analysis, path: BadPath | None, is_worse: Callable[[Sequence[Flow], Sequence[Flow]], bool]
) -> BadPath | None:
    """The same, and whether its flows are worse than the others in each half of the time: by what the kernel counts.

    Round trips are what a sample happened to see, and two or three of them are too few.
    """
    if path is None:
        return None
    compared = [
        tuple([half[f.src, f.dst] for f in side if (f.src, f.dst) in half] for side in (path.flows, path.others))
        for half in case.of(halves)
    ]
    is_steady = all(len(bad) == len(path.flows) and rest and is_worse(bad, rest) for bad, rest in compared)
    return replace(path, is_steady=is_steady)


def _takes_longer(flow: Flow, others: Iterable[Flow]) -> bool:
    """Whether round trips of a flow are clearly longer than the median of the others."""
    usual_s = median(f.rtt_s for f in others)
    return flow.rtt_s >= max(LONGER * usual_s, usual_s + LONGER_S)


def _placed(live: Live, found: Flows, path: BadPath) -> BadPath | None:
    """Whose link it is: the node that all slow paths have in common, and of two the one whose other, nearly idle
    connections have long round trips as well.
    """
    links = tuple(sorted((f.src, f.dst) for f in path.flows))
    common = set.intersection(*(f.ends for f in path.flows))
    if not common:
        return None
    if len(common) > 1:
        common = {n for n in common if _is_delayed_elsewhere(found, n, common)}
        if len(common) != 1:
            if len(live.statuses) < 3 and len(links) > 1:
                return None  # two nodes, slow both ways: there is nothing to compare with
            return replace(path, links=links)
    [node] = common
    slow_ways = {f.src == node for f in path.flows}
    fast_ways = {f.src == node for f in path.others if node in f.ends}
    if slow_ways & fast_ways and len(live.statuses) > 2 and len(path.flows) == 1:
        # Other data of this node flows the same way without delay: it is the path to that one peer.
        return replace(path, links=links)
    return replace(path, nodes=(node,))


def _is_delayed_elsewhere(found: Flows, node: int, pair: set[int]) -> bool:
    """Whether round trips between this node and nodes outside of the pair are long as well, against those elsewhere."""
    busy = [f for f in found.values() if f.busy > 0]
    own = [f for f in busy if node in f.ends and not f.ends <= pair]
    rest = [f for f in busy if not f.ends & pair] or [f for f in busy if node not in f.ends and f.ends & pair]
    return bool(own and rest) and all(_takes_longer(f, rest) for f in own)


def lossy_path(case: Analysis) -> BadPath | None:
    """Paths on which a good part of the segments is retransmitted, while on the others next to none are."""
    data = sorted(bulk(case.of(flows)), key=lambda f: -f.loss)
    cut = next((i for i in range(1, len(data)) if data[i - 1].loss >= MORE_LOST * data[i].loss), 0)
    lossy, rest = tuple(data[:cut]), tuple(data[cut:])
    if not lossy or any(f.loss < LOSS or f.num_lost < MIN_LOST for f in lossy):
        return None
    if all(f.busy >= FULL for f in data) and max(f.rate_bit_per_s for f in rest) < SLOWER * min(
        f.rate_bit_per_s for f in lossy
    ):
        return None
    common = tuple(set.intersection(*(f.ends for f in lossy)))
    if not common:
        return None
    links = () if len(common) == 1 else tuple(sorted((f.src, f.dst) for f in lossy))
    path = BadPath(flows=lossy, others=rest, nodes=() if links else common, links=links)
    return _steady(case, path, _loses_more)


def _loses_more(lossy: Sequence[Flow], rest: Sequence[Flow]) -> bool:
    least = max(LOSS, MORE_LOST * max(f.loss for f in rest))
    return all(f.loss >= least and f.num_lost >= MIN_LOST_IN_HALF for f in lossy)


def flow_evidence(found: Iterable[Flow]) -> Iterator[Evidence]:
    """One line per path."""
    for flow in found:
        yield stated(
            "sockets",
            "node {src} -> node {dst}: {rate} Mbit/s while sending, sending {busy} of the time, round trip {rtt} ms, "
            "{again} segments retransmitted",
            node_rank=flow.src,
            src=flow.src,
            dst=flow.dst,
            rate=f"{flow.rate_bit_per_s / 1e6:.1f}",
            busy=f"{flow.busy:.0%}",
            rtt=f"{flow.rtt_s * 1000:.1f}",
            again=flow.num_retransmits,
        )
