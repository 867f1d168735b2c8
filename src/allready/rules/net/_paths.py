"""What the probes say about each direction between two nodes: the one judgement that all rules about paths share.

TCP needs both directions, so silence alone does not say which one swallows packets.  Datagrams go one way only and do;
and any answer on another port of the same two nodes proves that packets pass both ways, so that a port filter is left.
"""

import functools
from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from allready.model import DatagramProbe, Evidence, PathProbe, Reachability, RollCall, World

Link = tuple[int, int]
Hop = tuple[int, int, int]
"""(src, dst, plane): nodes may have chosen several addresses, each in a network of its own, the plane."""

MAX_LINKS = 256
MAX_EVIDENCE = 16
MAX_ARROWS = 6

_ANSWERS = {"ok", "stuck", "refused"}


class Judged(Struct, frozen=True):
    """Every direction that was tried, by what it is.  A direction is in at most one of the sets."""

    filtered: frozenset[Hop] = frozenset()  # silence on data ports, while packets do pass both ways
    rejected: frozenset[Hop] = frozenset()  # an answer that says no, although our listener was there
    one_way: frozenset[Hop] = frozenset()  # this direction swallows everything, the reverse does not
    dead: frozenset[Hop] = frozenset()  # nothing passes between the two, in either direction
    fine: frozenset[Hop] = frozenset()  # connected at every port
    certain: frozenset[Hop] = frozenset()  # of those above: proven, not only likely
    data: dict[Hop, list[PathProbe]] = {}
    others: dict[Hop, list[PathProbe]] = {}  # master port and port range
    datagrams: dict[Hop, DatagramProbe] = {}
    closed: frozenset[int] = frozenset()  # nodes that no data connection reaches


@functools.lru_cache(maxsize=1)
def _judge_cached(key: "_ById") -> Judged:
    return _judge(key.reach, key.roll)


class _ById:
    """Several rules ask about the same (large) evidence; compare it by identity, not by value."""

    __slots__ = ("reach", "roll")

    def __init__(self, reach: Reachability, roll: RollCall | None) -> None:
        self.reach, self.roll = reach, roll

    def __hash__(self) -> int:
        return hash((id(self.reach), id(self.roll)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and self.reach is other.reach and self.roll is other.roll


def judge_paths(reach: Reachability, roll: RollCall | None) -> Judged:
    """Say of every direction what it is.  Nodes whose connection to node 0 broke are left out: another fault."""
    return _judge_cached(_ById(reach, roll))


def _judge(reach: Reachability, roll: RollCall | None) -> Judged:
    lost = set(roll.lost) if roll else set()
    plane = _Planes(reach)
    data: dict[Hop, list[PathProbe]] = {}
    others: dict[Hop, list[PathProbe]] = {}
    for path in reach.paths:
        if path.outcome in {"not_run", "error"} or path.src in lost or path.dst in lost or path.src == path.dst:
            continue
        if not plane.is_shared(path.address) and plane.is_known(path.dst, path.address):
            side = data if path.kind == "data" else others
            side.setdefault((path.src, path.dst, plane.of(path.dst, path.address)), []).append(path)
    datagrams = {
        (d.src, d.dst, plane.of(d.dst, d.address)): d
        for d in reach.datagrams
        if d.src not in lost and d.dst not in lost and not plane.is_shared(d.address)
    }
    return _Sorter(data, others, datagrams, roll).sort()


class _Planes:
    """Which of a node's addresses belong together across nodes: the first with the first, if all have equally many."""

    def __init__(self, reach: Reachability) -> None:
        names: dict[int, dict[str, str]] = {}
        owners: dict[str, set[int]] = {}
        for path in reach.paths:
            if path.kind == "master":  # an address that perhaps only the store uses
                continue
            names.setdefault(path.dst, {}).setdefault(path.address, path.interface or "")
            owners.setdefault(path.address, set()).add(path.dst)
        self._shared = {a for a, nodes in owners.items() if len(nodes) > 1}
        self._names = names
        self._index: dict[tuple[int, str], int] = {}
        counts = {len(addresses) for addresses in names.values()}
        if counts == {1} or len(counts) != 1:
            return
        for node, addresses in names.items():
            for i, (_, address) in enumerate(sorted((name, address) for address, name in addresses.items())):
                self._index[node, address] = i

    def of(self, node: int, address: str) -> int:
        return self._index.get((node, address), 0)

    def is_known(self, node: int, address: str) -> bool:
        """Whether this is one of the addresses on which the node's data ports were tried."""
        return address in self._names.get(node, {})

    def is_shared(self, address: str) -> bool:
        """Several nodes have this address: a probe may have reached anyone, and proves nothing."""
        return address in self._shared


class _Sorter:
    def __init__(
        self,
        data: dict[Hop, list[PathProbe]],
        others: dict[Hop, list[PathProbe]],
        datagrams: dict[Hop, DatagramProbe],
        roll: RollCall | None,
    ) -> None:
        self.data, self.others, self.datagrams = data, others, datagrams
        self.claimed = {c.node_rank: c.address for c in roll.claims if c.refused is None} if roll else {}
        self.state = {hop: _state(paths) for hop, paths in data.items()}
        self.filtered: set[Hop] = set()
        self.rejected: set[Hop] = set()
        self.one_way: set[Hop] = set()
        self.silent_pairs: list[tuple[Hop, Hop]] = []
        self.certain: set[Hop] = set()

    def sort(self) -> Judged:
        for hop in self.state:
            a, b, plane = hop
            back = (b, a, plane)
            if a < b or back not in self.state:
                self._pair(hop, back)
        closed = self._closed()
        dead: set[Hop] = set()
        for pair in self.silent_pairs:
            here = {hop for hop in pair if hop in self.state}
            if all(hop[1] in closed for hop in pair):  # both ends let nobody in: their firewalls explain it
                self.filtered |= here
            else:
                dead |= here
        return Judged(
            filtered=frozenset(self.filtered),
            rejected=frozenset(self.rejected),
            one_way=frozenset(self.one_way),
            dead=frozenset(dead),
            fine=frozenset(hop for hop, state in self.state.items() if state == "ok"),
            certain=frozenset(self.certain),
            data=self.data,
            others=self.others,
            datagrams=self.datagrams,
            closed=frozenset(closed),
        )

    def _pair(self, hop: Hop, back: Hop) -> None:
        states = {h: self.state[h] for h in (hop, back) if h in self.state}
        if all(state == "ok" for state in states.values()):
            return
        self.rejected |= {h for h, state in states.items() if state == "refused"}
        self.certain |= self.rejected & {hop, back}
        mute = {h for h, state in states.items() if state in {"silent", "no_route"}}
        if not mute:
            return
        if self._answers(hop, back):
            self.rejected |= {h for h in mute if states[h] == "no_route"}
            silent = {h for h in mute if states[h] == "silent"}
            self.filtered |= silent
            self.certain |= {h for h in silent if all(p.outcome == "filtered" for p in self.data[h])}
            return
        there, again = self._heard(hop), self._heard(back)
        if there is not None and again is not None and there != again:
            broken = hop if again else back
            self.one_way.add(broken)
            if any(h[1] == broken[1] and h != broken and self._heard(h) for h in self._into(broken[1])):
                self.certain.add(broken)
            return
        if there is False and again is False:
            self.certain |= mute
        self.silent_pairs.append((hop, back))

    def _into(self, node: int) -> Iterable[Hop]:
        return self._by_dst.get(node, ())

    @functools.cached_property
    def _by_dst(self) -> dict[int, list[Hop]]:
        found: dict[int, list[Hop]] = {}
        for hop in self.datagrams:
            found.setdefault(hop[1], []).append(hop)
        return found

    def _answers(self, hop: Hop, back: Hop) -> bool:
        """Whether packets are known to pass both ways between these two nodes."""
        for h in (hop, back):
            if any(p.outcome in _ANSWERS for p in (*self.data.get(h, ()), *self.others.get(h, ()))):
                return True
            # The check's own connection to node 0 runs over this very address, and it works.
            if h[0] == 0 and any(p.address == self.claimed.get(h[1]) for p in self.data.get(h, ())):
                return True
            if h[1] == 0 and any(
                p.src_address and p.src_address == self.claimed.get(h[0]) for p in self.data.get(h, ())
            ):
                return True
        return bool(self._heard(hop) and self._heard(back))

    def _heard(self, hop: Hop) -> bool | None:
        """Whether any datagram arrived; None when none was sent."""
        probe = self.datagrams.get(hop)
        if probe is None or not set(probe.sent_bytes) - set(probe.too_big_bytes):
            return None
        return bool(probe.received_bytes)

    def _closed(self) -> set[int]:
        """Nodes into which every data direction is silent, at least one of them for a filter without doubt."""
        mute: Counter[int] = Counter()
        tried: Counter[int] = Counter()
        for (_, dst, _), state in self.state.items():
            tried[dst] += 1
            mute[dst] += state == "silent"
        filtered = {dst for _, dst, _ in self.filtered}
        return {dst for dst in filtered if mute[dst] == tried[dst]}


def _state(paths: list[PathProbe]) -> str:
    outcomes = {p.outcome for p in paths}
    for outcome, state in (("filtered", "silent"), ("refused", "refused"), ("no_route", "no_route")):
        if outcome in outcomes:
            return state
    return "ok"


def links_of(hops: Iterable[Hop]) -> tuple[Link, ...]:
    """Directions without their planes, each once, sorted."""
    return tuple(sorted({(src, dst) for src, dst, _ in hops}))


def arrows(links: Iterable[Link], world: World) -> str:
    """`1 (gpu01) -> 0 (gpu00), …`: beyond a few only their number is said."""
    links = list(links)
    shown = ", ".join(f"{world.label(a)} -> {world.label(b)}" for a, b in links[:MAX_ARROWS])
    return f"{shown}, … +{len(links) - MAX_ARROWS}" if len(links) > MAX_ARROWS else shown


def common_node(bad: Iterable[Link], fine: Iterable[Link]) -> int | None:
    """The one node that all bad directions touch, with two peers or more, while the others reach each other."""
    bad = set(bad)
    shared = set.intersection(*({a, b} for a, b in bad)) if bad else set()
    if len(shared) != 1 or len({n for link in bad for n in link}) < 3:
        return None
    [node] = shared
    touched = {n for link in bad for n in link} - {node}
    elsewhere = {n for link in fine if node not in link for n in link}
    spared = any(node in link for link in fine)  # then it is not the node as such
    return node if touched & elsewhere and not spared else None


def path_evidence(paths: Iterable[PathProbe]) -> tuple[Evidence, ...]:
    """The probes as they ended."""
    found = []
    for _, p in zip(range(MAX_EVIDENCE), paths, strict=False):
        passed = f", passed {p.passed_bytes[-1]} B" if p.passed_bytes else ""
        stuck = f", stuck at {p.stuck_bytes} B" if p.stuck_bytes is not None else ""
        detail = f": {p.detail}" if p.detail else ""
        source = f"{p.src_address} -> " if p.src_address else ""  # an attempt without an answer has no address
        text = f"{source}{p.address} port {p.port}: {p.outcome} after {p.duration_s:.1f} s"
        found.append(
            Evidence(
                source=f"TCP probe ({p.kind}) {p.src} -> {p.dst}", text=text + passed + stuck + detail, node_rank=p.src
            )
        )
    return tuple(found)


def datagram_evidence(probes: Iterable[DatagramProbe]) -> tuple[Evidence, ...]:
    """Which datagrams arrived."""
    return tuple(
        Evidence(
            source=f"datagrams {d.src} -> {d.dst}",
            text=f"sent {_sizes(d.sent_bytes)} B, received {_sizes(d.received_bytes)} B",
            node_rank=d.dst,
        )
        for _, d in zip(range(MAX_EVIDENCE), probes, strict=False)
    )


def _sizes(sizes: Iterable[int]) -> str:
    return ",".join(map(str, sorted(sizes))) or "-"
