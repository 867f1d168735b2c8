"""How data flows between nodes: rate, time with data in flight, round trips and losses, per direction and pair.

Derived from the kernel's counters in two samples a few seconds apart.  A path that is slow is the one whose senders
always have data in flight while all other senders are mostly idle, waiting for what comes over the slow one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from allready.judging.analysis import Analysis
from allready.judging.link_ends import address_book, key, plain, snapshots
from allready.judging.link_paths import arrows, names
from allready.judging.stated import stated
from allready.model import Evidence, Live, SocketRow

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
"""Share of retransmitted segments.  On healthy Ethernet it is far below 0.0001; loops of short messages on a busy
machine repeat up to five of a thousand for no reason, on all paths alike, when the kernel's early probe was too early.
"""
MIN_LOST = 15
MORE_LOST = 3.0
FULL = 0.8
"""Share of the time in which a path that the job fills has data in flight.  Where all paths are full and as fast as
each other, their own queues overflow and delay acknowledgements: which of them repeats most is chance, and costs none.
"""
CONTENTION = 0.2
"""Share of ten seconds in which some process of the node waited for a processor (PSI)."""


class Flow(Struct, kw_only=True):
    """One direction between two nodes, all connections together, during `seconds`.

    `busy`: share of the time in which data was in flight that the receiver had room for; `rtt_s`: of the connection
    that carried most, at the median sample; `unsteady`: the variation of its round trips as a share of them.
    """

    src: int
    dst: int
    seconds: float = 0.0
    sent_bytes: int = 0
    busy: float = 0.0
    num_retransmits: int = 0
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
        """Share of retransmitted segments."""
        return self.num_retransmits / self.num_segments if self.num_segments else 0.0

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
        self.num_segments += -(-sent // SEGMENT_BYTES)
        rtts = [(r.rtt_s, r.rtt_variation_s or 0.0) for r in rows if r.rtt_s]
        if rtts and sent > self.most_bytes:
            self.most_bytes, self.rtt_s = sent, median(rtt for rtt, _ in rtts)
            self.unsteady = median(variation / rtt for rtt, variation in rtts)


class BadPath(Struct, frozen=True, kw_only=True):
    """Where data flows slowly, or segments get lost, beside the other paths.

    `nodes` has the one node whose link it is, or is empty when only `links` are known.  `cost`: share of the time that
    is lost by a slow one.  A link that is slow in one direction shows in `flows` of both, since acknowledgements wait
    in the same queue as data.
    """

    flows: tuple[Flow, ...]
    others: tuple[Flow, ...]
    nodes: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    cost: float = 0.0

    @property
    def ends(self) -> set[int]:
        """The nodes at either end of it."""
        return {*self.nodes, *(n for link in self.links for n in link)}

    @property
    def seconds(self) -> float:
        """For how long all of its flows were measured."""
        return min(f.seconds for f in self.flows)

    @property
    def mbit_per_s(self) -> tuple[float, float]:
        """Of these paths and of the others, at the median."""
        here, others = (median(f.rate_bit_per_s for f in flows) / 1e6 for flows in (self.flows, self.others))
        return here, others

    @property
    def loss(self) -> tuple[float, float]:
        """Share of retransmitted segments of these paths and of the others."""
        here, others = (
            sum(f.num_retransmits for f in flows) / max(1, sum(f.num_segments for f in flows))
            for flows in (self.flows, self.others)
        )
        return here, others

    def where(self, live: Live) -> str:
        """The node, or the directions."""
        return names(live, self.nodes) if self.nodes else arrows(self.links)

    def place(self, live: Live) -> str:
        """One node at which the link can be examined."""
        return names(live, self.nodes or (self.flows[0].src,)).removeprefix("node ")

    def has_cpu_contention(self, live: Live) -> bool:
        """Whether a node at either end has too few CPUs: then acknowledgements come late, and paths seem slow."""
        nodes = live.statuses.keys() & set().union(*(f.ends for f in self.flows))
        return any((live.statuses[n].cpu_pressure_share or 0.0) >= CONTENTION for n in nodes)


def flows(case: Analysis) -> dict[tuple[int, int], Flow]:
    """By (from node, to node); only where two samples are far enough apart."""
    live = case.live
    if live is None:
        return {}
    book = address_book(live)
    found: dict[tuple[int, int], Flow] = {}
    for node in sorted(live.statuses):
        statuses = snapshots(live, node)
        statuses = [s for s in statuses if s.time_s >= statuses[-1].time_s - MAX_S]
        if len(statuses) < 2:
            continue
        tables = [(s.time_s, {key(row): row for row in s.sockets}) for s in statuses]
        for name, row in tables[-1][1].items():
            other = book.get(plain(row.remote))
            rows = [(time_s, table[name]) for time_s, table in tables if name in table]
            seconds = rows[-1][0] - rows[0][0]
            if other is not None and other != node and seconds >= MIN_S:
                flow = found.setdefault((node, other), Flow(src=node, dst=other))
                flow.add([r for _, r in rows], seconds)
    return found


def bulk(found: Mapping[tuple[int, int], Flow]) -> list[Flow]:
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
        reference = median(f.rate_bit_per_s for f in fast)
        cost = max(f.busy * (1 - f.rate_bit_per_s / reference) for f in slow)
        if (
            fast[0].rate_bit_per_s < SLOWER * slow[-1].rate_bit_per_s
            or cost < LOST_TIME
            or max(f.busy for f in slow) < BUSY
            or not all(_takes_longer(f, fast) and f.unsteady <= UNSTEADY for f in slow)
        ):
            continue
        candidate = _placed(live, found, BadPath(flows=tuple(slow), others=tuple(fast), cost=cost))
        if candidate is not None and (best is None or bool(candidate.nodes) > bool(best.nodes)):
            best = candidate
    return best


def _takes_longer(flow: Flow, others: Iterable[Flow]) -> bool:
    """Whether round trips of a flow are clearly longer than the median of the others."""
    usual_s = median(f.rtt_s for f in others)
    return flow.rtt_s >= max(LONGER * usual_s, usual_s + LONGER_S)


def _placed(live: Live, found: Mapping[tuple[int, int], Flow], path: BadPath) -> BadPath | None:
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


def _is_delayed_elsewhere(found: Mapping[tuple[int, int], Flow], node: int, pair: set[int]) -> bool:
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
    if not lossy or any(f.loss < LOSS or f.num_retransmits < MIN_LOST for f in lossy):
        return None
    if all(f.busy >= FULL for f in data) and max(f.rate_bit_per_s for f in rest) < SLOWER * min(
        f.rate_bit_per_s for f in lossy
    ):
        return None
    common = tuple(set.intersection(*(f.ends for f in lossy)))
    if len(common) == 1:
        return BadPath(flows=lossy, others=rest, nodes=common)
    return BadPath(flows=lossy, others=rest, links=tuple(sorted((f.src, f.dst) for f in lossy))) if common else None


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
