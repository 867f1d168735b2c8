"""How the data between nodes flows: rate, time with data under way, round trips and losses, per direction and pair.

Reckoned from the kernel's counters between two looks a few seconds apart.  A path that is slow shows as the one whose
senders always have data under way while all other senders are mostly idle, waiting for what comes over the slow one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from msgspec import Struct

from allready.judging.analysis import Analysis
from allready.judging.link_ends import address_book, key, plain, snapshots
from allready.model import Evidence, Live, SocketRow

MIN_S = 1.5
SURE_S = 3.5
MAX_S = 6.5
"""Agents tell of sockets every two seconds: four looks, and none from before a fault that is seven seconds old."""
BULK = 0.05
"""Paths with less than this share of the busiest path's bytes carry notices, not data: their rate says nothing."""
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
"""Share of segments sent again.  On healthy Ethernet it is far below 0.0001; loops of short messages on a busy machine
repeat up to five of a thousand for no reason, on all paths alike, when the kernel's early probe was too early."""
MIN_LOST = 15
MORE_LOST = 3.0


class Flow(Struct, kw_only=True):
    """One direction between two nodes, all connections together, during `seconds`.

    `busy`: share of the time in which data was under way that the receiver had room for; `rtt_s`: of the connection
    that carried most, at the median look; `unsteady`: the variation of its round trips as a share of them.
    """

    src: int
    dst: int
    seconds: float = 0.0
    sent_bytes: int = 0
    busy: float = 0.0
    num_again: int = 0
    num_segments: int = 0
    rtt_s: float = 0.0
    unsteady: float = 0.0
    most_bytes: int = -1

    @property
    def rate_bit_per_s(self) -> float:
        """While data was under way."""
        return self.sent_bytes * 8 / max(self.busy * self.seconds, 1e-3)

    @property
    def loss(self) -> float:
        """Share of segments that were sent again."""
        return self.num_again / self.num_segments if self.num_segments else 0.0


class SlowPath(Struct, frozen=True, kw_only=True):
    """Where data flows slowly.  `nodes` has the one node whose link it is, or is empty when only `links` are known.

    `cost`: share of the time that is lost by it.  A link that is slow in one direction shows in `flows` of both, since
    acknowledgements wait in the same queue as data.
    """

    flows: tuple[Flow, ...]
    others: tuple[Flow, ...]
    nodes: tuple[int, ...]
    links: tuple[tuple[int, int], ...]
    cost: float

    @property
    def mbit_per_s(self) -> float:
        """Of the slow paths, at the median."""
        return median(f.rate_bit_per_s for f in self.flows) / 1e6

    @property
    def others_mbit_per_s(self) -> float:
        """Of the other paths, at the median."""
        return median(f.rate_bit_per_s for f in self.others) / 1e6


def flows(case: Analysis) -> dict[tuple[int, int], Flow]:
    """By (from node, to node); only where two looks are far enough apart."""
    live = case.live
    if live is None:
        return {}
    book = address_book(live)
    found: dict[tuple[int, int], Flow] = {}
    for node in sorted(live.statuses):
        words = snapshots(live, node)
        words = [w for w in words if w.time_s >= words[-1].time_s - MAX_S]
        if len(words) < 2 or words[-1].time_s - words[0].time_s < MIN_S:
            continue
        tables = [{key(row): row for row in w.sockets} for w in words]
        for name, row in tables[-1].items():
            other = book.get(plain(row.remote))
            first = next((i for i, t in enumerate(tables) if name in t), None)
            if other is None or other == node or first is None:
                continue
            seconds = words[-1].time_s - words[first].time_s
            if seconds >= MIN_S:
                flow = found.setdefault((node, other), Flow(src=node, dst=other))
                _add(flow, [t[name] for t in tables[first:] if name in t], seconds)
    return found


def _add(flow: Flow, rows: Sequence[SocketRow], seconds: float) -> None:
    before, now = rows[0], rows[-1]
    if None in {before.bytes_acked, now.bytes_acked, before.busy_s, now.busy_s}:
        return
    sent = (now.bytes_acked or 0) - (before.bytes_acked or 0)
    if sent < 0 or (now.busy_s or 0.0) < (before.busy_s or 0.0):
        return  # another connection that got the same ports
    full_s = (now.receiver_limited_s or 0.0) - (before.receiver_limited_s or 0.0)
    busy_s = (now.busy_s or 0.0) - (before.busy_s or 0.0) - max(0.0, full_s)
    flow.seconds = max(flow.seconds, seconds)
    flow.sent_bytes += sent
    flow.busy = max(flow.busy, min(1.0, max(0.0, busy_s / seconds)))
    flow.num_again += max(0, now.total_retransmits - before.total_retransmits)
    flow.num_segments += -(-sent // SEGMENT_BYTES)
    rtts = [r.rtt_s for r in rows if r.rtt_s]
    if rtts and sent > flow.most_bytes:
        flow.most_bytes, flow.rtt_s = sent, median(rtts)
        flow.unsteady = median((r.rtt_variation_s or 0.0) / r.rtt_s for r in rows if r.rtt_s)


def bulk(found: Mapping[tuple[int, int], Flow]) -> list[Flow]:
    """Paths that carry data, the slowest first."""
    most = max((f.sent_bytes for f in found.values()), default=0)
    return sorted(
        (f for f in found.values() if f.sent_bytes >= max(MIN_BYTES, BULK * most)), key=lambda f: f.rate_bit_per_s
    )


def slow_path(case: Analysis, live: Live) -> SlowPath | None:
    """The paths that all others wait for, if they are clearly slower than the others; None on any doubt."""
    found = case.of(flows)
    data = bulk(found)
    best: SlowPath | None = None
    for cut in range(1, len(data)):
        slow, fast = data[:cut], data[cut:]
        if fast[0].rate_bit_per_s < SLOWER * slow[-1].rate_bit_per_s:
            continue
        reference = median(f.rate_bit_per_s for f in fast)
        cost = max(f.busy * (1 - f.rate_bit_per_s / reference) for f in slow)
        usual_rtt_s = median(f.rtt_s for f in fast)
        if cost < LOST_TIME or max(f.busy for f in slow) < BUSY:
            continue
        if any(f.rtt_s < max(LONGER * usual_rtt_s, usual_rtt_s + LONGER_S) for f in slow):
            continue
        if any(f.unsteady > UNSTEADY for f in slow):
            continue
        candidate = _placed(live, found, slow, fast, cost)
        if candidate is not None and (best is None or bool(candidate.nodes) > bool(best.nodes)):
            best = candidate
    return best


def _placed(
    live: Live, found: Mapping[tuple[int, int], Flow], slow: list[Flow], fast: list[Flow], cost: float
) -> SlowPath | None:
    """Whose link it is: the node that all slow paths have in common, and by nothing else the one whose other, nearly
    idle connections have long round trips as well.
    """
    links = tuple(sorted((f.src, f.dst) for f in slow))
    common = set.intersection(*({f.src, f.dst} for f in slow))
    if not common:
        return None
    if len(common) > 1:
        common = {n for n in common if _is_delayed_elsewhere(found, n, common)}
        if len(common) != 1:
            if len(live.statuses) < 3 and len(links) > 1:
                return None  # two nodes, slow both ways: there is nothing to compare with
            return SlowPath(flows=tuple(slow), others=tuple(fast), nodes=(), links=links, cost=cost)
    [node] = common
    ways = {"out" if f.src == node else "in" for f in slow}
    also = {"out" if f.src == node else "in" for f in fast if node in {f.src, f.dst}}
    if ways & also and len(live.statuses) > 2 and len(slow) == 1:
        # Other data of this node flows the same way without delay: it is the path to that one peer.
        return SlowPath(flows=tuple(slow), others=tuple(fast), nodes=(), links=links, cost=cost)
    return SlowPath(flows=tuple(slow), others=tuple(fast), nodes=(node,), links=(), cost=cost)


def _is_delayed_elsewhere(found: Mapping[tuple[int, int], Flow], node: int, pair: set[int]) -> bool:
    """Whether round trips between this node and nodes outside of the pair are long as well, against those elsewhere."""
    own = [f.rtt_s for f in found.values() if node in {f.src, f.dst} and not {f.src, f.dst} <= pair and f.busy > 0]
    rest = [f.rtt_s for f in found.values() if not {f.src, f.dst} & pair and f.busy > 0]
    other = [f.rtt_s for f in found.values() if node not in {f.src, f.dst} and {f.src, f.dst} & pair and f.busy > 0]
    reference = rest or other
    if not own or not reference:
        return False
    usual_s = median(reference)
    return min(own) >= max(LONGER * usual_s, usual_s + LONGER_S)


class LossyPath(Struct, frozen=True, kw_only=True):
    """Where segments get lost.  `nodes` has the one node that all lossy paths lead to or from."""

    flows: tuple[Flow, ...]
    nodes: tuple[int, ...]
    links: tuple[tuple[int, int], ...]
    loss: float
    others_loss: float
    num_again: int


CROWDED = 0.2
"""Share of ten seconds in which some process of the node waited for a processor (PSI)."""


def is_crowded(live: Live, flows: Sequence[Flow]) -> bool:
    """Whether a node at either end has too few processors: then acknowledgements come late, and paths seem slow."""
    nodes = {n for f in flows for n in (f.src, f.dst)}
    return any((live.statuses[n].cpu_pressure_share or 0.0) >= CROWDED for n in nodes if n in live.statuses)


def lossy_path(case: Analysis) -> LossyPath | None:
    """Paths on which a good part of the segments is sent again, while on the others next to none are."""
    data = bulk(case.of(flows))
    data.sort(key=lambda f: -f.loss)
    cut = next((i for i in range(1, len(data)) if data[i - 1].loss >= MORE_LOST * data[i].loss), 0)
    lossy, rest = data[:cut], data[cut:]
    if not lossy or any(f.loss < LOSS or f.num_again < MIN_LOST for f in lossy):
        return None
    others = sum(f.num_again for f in rest) / max(1, sum(f.num_segments for f in rest))
    loss = sum(f.num_again for f in lossy) / sum(f.num_segments for f in lossy)
    common = set.intersection(*({f.src, f.dst} for f in lossy))
    if not common:
        return None
    links = tuple(sorted((f.src, f.dst) for f in lossy))
    return LossyPath(
        flows=tuple(lossy),
        nodes=tuple(common) if len(common) == 1 else (),
        links=links if len(common) > 1 else (),
        loss=loss,
        others_loss=others,
        num_again=sum(f.num_again for f in lossy),
    )


def told(found: Iterable[Flow]) -> Iterator[Evidence]:
    """One line per path."""
    for flow in found:
        yield Evidence(
            source="sockets",
            text=f"node {flow.src} -> node {flow.dst}: {flow.rate_bit_per_s / 1e6:.1f} Mbit/s while sending, sending "
            f"{flow.busy:.0%} of the time, round trip {flow.rtt_s * 1000:.1f} ms, {flow.num_again} segments sent again",
            node_rank=flow.src,
        )
