"""Which nodes' paths are far slower than the others, by the payloads and round trips of the probes."""

import shlex
from collections.abc import Mapping, Sequence
from statistics import median, median_low

from msgspec import Struct

from allready.judging.analysis import Analysis
from allready.judging.majority import is_minority
from allready.rules.net._losses import WAITING_GB_PER_S
from allready.rules.net._paths import NodePair, judge_paths

MIN_NODES = 3
MIN_PAIRS = 3
RATIO = 4.0
EXCESS_S = 0.005  # below that a difference may be the scheduler of a busy machine
CLEAR_RATIO = 8.0
CLEAR_EXCESS_S = 0.05
PROBE_BYTES = 2**20
MIN_GB_PER_S = 1e-6  # what is rounded to nothing is still a number
MIN_S = 1e-6  # as well
USELESS_S = 1.0
"""What PROBE_BYTES take on no network of a cluster."""


class SlowPaths(Struct, frozen=True, kw_only=True):
    """Paths that take far longer than the others.

    `nodes`: all paths of these do, or all in one direction.  `links`: all slow directions.  `seconds`: of every
    direction; `usual_s`: what they were compared with; `plane`: in which network.  `is_half`: there are as many slow
    nodes as others, so that two of the others may also be an exception of their own, on one machine.
    """

    nodes: tuple[int, ...]
    links: tuple[NodePair, ...]
    seconds: dict[NodePair, float]
    usual_s: float
    plane: int
    is_half: bool = False

    @property
    def worst(self) -> tuple[NodePair, ...]:
        """The slow directions, the slowest first."""
        return tuple(sorted(self.links, key=lambda link: -self.seconds[link]))

    @property
    def elsewhere_s(self) -> float | None:
        """The median of the other directions; None where it is no faster, since most of them are bad as well."""
        others = [s for link, s in self.seconds.items() if link not in self.links]
        middle = median_low(others) if others else None
        return middle if middle is not None and _is_slow(self.seconds[self.worst[0]], middle) else None

    @property
    def best_elsewhere_s(self) -> float:
        """The median of the fastest paths of the nodes that are not named."""
        return median_low(s for n, s in _best(self.seconds, (0, 1)).items() if n not in self.nodes)

    @property
    def is_clear(self) -> bool:
        """Whether even the best of them is slow beyond what a busy machine does."""
        best = min((self.seconds[link] for link in self.links), default=0.0)
        return bool(self.nodes) and best > CLEAR_RATIO * self.usual_s and best - self.usual_s >= CLEAR_EXCESS_S


def slow_transfers(case: Analysis) -> SlowPaths | None:
    """By the throughput of the measured payload; None when there is too little to compare, or none is slow."""
    found: Planes = {}
    for (src, dst, plane), paths in case.of(judge_paths).data.items():
        for p in paths:
            if p.throughput_gb_per_s is not None:
                seconds = PROBE_BYTES / (max(p.throughput_gb_per_s, MIN_GB_PER_S) * 1e9)
                _note(found, plane, (src, dst), seconds)
    return _slowest(found)


def slow_round_trips(case: Analysis) -> SlowPaths | None:
    """By the round trip of the smallest payload; behind a slow link it waits for whatever else is under way."""
    found: Planes = {}
    for (src, dst, plane), paths in case.of(judge_paths).data.items():
        rates = [p.throughput_gb_per_s for p in paths if p.throughput_gb_per_s is not None]
        for p in paths if not rates or max(rates) >= WAITING_GB_PER_S else ():
            if p.rtt_s is not None:
                _note(found, plane, (src, dst), p.rtt_s)
    return _slowest(found)


Planes = dict[int, dict[NodePair, float]]
"""Plane -> direction -> the best time in that network; those of several networks are not compared."""


def _note(found: Planes, plane: int, link: NodePair, seconds: float) -> None:
    times = found.setdefault(plane, {})
    times[link] = min(seconds, times.get(link, seconds))


def _slowest(found: Planes) -> SlowPaths | None:
    """What is slow in one network: where it is clear, and then where it is worst against the others."""
    slow = [s for plane, seconds in sorted(found.items()) if (s := _slow(seconds, plane)) is not None]
    return max(slow, key=lambda s: (s.is_clear, s.seconds[s.worst[0]] / max(s.usual_s, MIN_S)), default=None)


def bandwidths(seconds: Mapping[NodePair, float]) -> dict[int, tuple[float | None, float | None]]:
    """Node -> the best GB/s of its paths out and in; None where none was measured."""
    found: dict[int, tuple[float | None, float | None]] = {}
    for node in sorted({n for link in seconds for n in link}):
        sides = [min((s for link, s in seconds.items() if link[end] == node), default=None) for end in (0, 1)]
        out, inward = (None if s is None else PROBE_BYTES / s / 1e9 for s in sides)
        found[node] = (out, inward)
    return found


def interface_of(case: Analysis, node: int, plane: int | None = None) -> str:
    """The interface of a node that carries data (in this network), quoted for a shell; IFNAME where it is not known."""
    hops = {h: ps for h, ps in case.of(judge_paths).data.items() if h[1] == node and plane in {None, h[2]}}
    names = {p.interface for ps in hops.values() for p in ps if p.interface}
    return shlex.quote(min(names)) if names else "IFNAME"


def _slow(seconds: dict[NodePair, float], plane: int) -> SlowPaths | None:
    if len({frozenset(link) for link in seconds}) < MIN_PAIRS or len({n for link in seconds for n in link}) < MIN_NODES:
        return None
    nodes, usual = _slow_nodes(seconds, (0, 1))
    rest = {link: s for link, s in seconds.items() if not set(nodes).intersection(link)}
    among = median_low(rest.values()) if rest else usual  # of one good and one bad direction the mean is neither
    pairs = {link for link, s in rest.items() if _is_slow(s, among) and _is_slow(rest.get(link[::-1], 0.0), among)}
    if not is_minority(len(pairs), len(rest)):
        pairs = set()
    touching = {link for link in seconds if set(nodes).intersection(link)}
    both = SlowPaths(nodes=nodes, links=tuple(sorted(pairs | touching)), seconds=seconds, usual_s=among, plane=plane)
    found = both if both.links else None
    if both.is_clear:
        return both
    for end in (0, 1):  # the other direction carries its acknowledgements, and is a little slower for that
        nodes, usual = _slow_nodes(seconds, (end,))
        links = tuple(sorted(link for link in seconds if link[end] in nodes))
        one_way = SlowPaths(nodes=nodes, links=links, seconds=seconds, usual_s=usual, plane=plane)
        if one_way.is_clear and set(nodes) >= set(both.nodes):  # a busy machine may be slow to read for a while
            return one_way
    return _slow_half(seconds, plane) or found


def _slow_half(seconds: Mapping[NodePair, float], plane: int) -> SlowPaths | None:
    """Nodes, at most half of all, that reach no node at a useful speed, while the faster half reach each other."""
    best = _best(seconds, (0, 1))
    fine = sorted(best.values())[: len(best) // 2]
    slow = tuple(sorted(n for n, s in best.items() if s >= USELESS_S))
    if not slow or len(slow) > len(fine):
        return None
    links = tuple(sorted(link for link in seconds if set(slow).intersection(link)))
    is_half = not is_minority(len(slow), len(best))
    found = SlowPaths(
        nodes=slow, links=links, seconds=dict(seconds), usual_s=median(fine), plane=plane, is_half=is_half
    )
    return found if found.is_clear else None


def _slow_nodes(seconds: Mapping[NodePair, float], ends: Sequence[int]) -> tuple[tuple[int, ...], float]:
    """Nodes whose best path is slow against the median of the nodes' best, with that; never more than half of them.

    Only paths on which the node is at one of `ends` count: 0 as the sender, 1 as the receiver; one peer alone tells
    nothing of a node.
    """
    best = _best(seconds, ends)
    usual = median(best.values())
    peers: dict[int, set[int]] = {}
    for link in seconds:
        for end in ends:
            peers.setdefault(link[end], set()).add(link[1 - end])
    slow = {n for n, s in best.items() if len(peers[n]) > 1 and _is_slow(s, usual)}
    return (tuple(sorted(slow)), usual) if is_minority(len(slow), len(best)) else ((), usual)


def _best(seconds: Mapping[NodePair, float], ends: Sequence[int]) -> dict[int, float]:
    """Node -> its fastest path at one of `ends`."""
    best: dict[int, float] = {}
    for link, s in seconds.items():
        for n in {link[end] for end in ends}:
            best[n] = min(s, best.get(n, s))
    return best


def _is_slow(seconds: float, usual: float) -> bool:
    return seconds > RATIO * usual and seconds - usual >= EXCESS_S
