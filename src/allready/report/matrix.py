"""Reachability as a matrix: one cell per direction between two nodes."""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable

from msgspec import Struct

from allready import units
from allready.model import DatagramProbe, PathProbe, Phrase, Reachability
from allready.model.fill import said, words_of
from allready.report.safe import plain
from allready.text.catalog import say_value

OUTCOMES = ("ok", "not_run", "error", "refused", "stuck", "no_route", "filtered")
"""From harmless to worst: what a cell shows when the paths of one direction ended differently."""

LETTERS = {"ok": "·", "not_run": "?", "error": "E", "refused": "R", "stuck": "S", "no_route": "N", "filtered": "F"}
"""One letter per outcome, the same in every language and without colour."""

MAX_NODES = 64
MAX_LISTED = 64
MAX_DRAWN = 32
MAX_TALLIES = 16

_RANKS = {outcome: rank for rank, outcome in enumerate(OUTCOMES)}
_ERROR = _RANKS["error"]


class Cell(Struct, frozen=True):
    """One direction: the worst outcome, the best round trip, and what is worth saying of its paths."""

    src: int
    dst: int
    outcome: str
    rtt_s: float | None
    throughput_gb_per_s: float | None
    details: tuple[Phrase, ...]

    def detail(self, language: str) -> str:
        """What is worth saying, in one line."""
        return plain(str(say_value(self.details, language) if self.details else ""), most=1200)

    @property
    def letter(self) -> str:
        """One character for the outcome."""
        return LETTERS[self.outcome]

    @property
    def bad(self) -> bool:
        """Something was tried and did not work."""
        return self.outcome not in {"ok", "not_run"}


class NodeTally(Struct, frozen=True):
    """How many directions from and to one node are in trouble, and how many were tried."""

    node_rank: int
    bad_from: int
    all_from: int
    bad_to: int
    all_to: int


class Matrix(Struct, frozen=True):
    """All directions that were tried, counted, and the nodes and cells worth showing."""

    cells: dict[tuple[int, int], Cell]  # between the shown nodes
    shown: tuple[int, ...]  # all nodes, or of very many those with trouble
    bad: tuple[Cell, ...]  # the first directions in trouble, by node rank
    num_nodes: int
    num_cells: int
    num_bad: int
    rtt_s: tuple[float, float, float] | None  # lowest, median, highest
    tallies: tuple["NodeTally", ...]  # the fewest nodes that every direction in trouble has as an end, the worst first
    letters: tuple[str, ...]  # outcomes that occur, from harmless to worst: what a legend must explain


def matrix(reach: Reachability) -> Matrix:
    """The matrix of all probes.  One pass over them, for there are a quarter of a million between 512 nodes."""
    worst: dict[tuple[int, int], int] = {}
    trips: dict[tuple[int, int], float] = {}
    for path in reach.paths:
        pair = (path.src, path.dst)
        rank = _RANKS.get(path.outcome, _ERROR)
        if rank > worst.get(pair, -1):
            worst[pair] = rank
        if path.rtt_s is not None and path.rtt_s < trips.get(pair, math.inf):
            trips[pair] = path.rtt_s
    bad = sorted(pair for pair, rank in worst.items() if rank >= _ERROR)
    nodes = sorted({n for pair in worst for n in pair})
    cover = _cover(bad)
    shown = tuple(nodes) if len(nodes) <= MAX_NODES else _worst(bad, cover)
    drawn = set(shown)
    listed = set(bad[:MAX_LISTED])
    wanted = {pair for pair in worst if drawn.issuperset(pair)} if drawn else set()
    cells = _cells(reach, wanted | listed)
    spread = sorted(trips.values())
    return Matrix(
        cells={pair: cells[pair] for pair in wanted},
        shown=shown,
        bad=tuple(cells[pair] for pair in bad[:MAX_LISTED]),
        num_nodes=len(nodes),
        num_cells=sum(rank != _RANKS["not_run"] for rank in worst.values())
        + sum(n for outcome, n in reach.directions_left_out.items() if outcome != "not_run"),
        num_bad=len(bad) + sum(n for o, n in reach.directions_left_out.items() if _RANKS.get(o, _ERROR) >= _ERROR),
        rtt_s=(spread[0], statistics.median(spread), spread[-1]) if spread else None,
        tallies=tuple(_tally(n, worst) for n in cover[:MAX_TALLIES]),
        letters=tuple(OUTCOMES[rank] for rank in sorted(set(worst.values()))),
    )


def _cover(bad: Iterable[tuple[int, int]]) -> list[int]:
    """Few nodes that all bad directions touch: again and again the node with most of those that are left."""
    left: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for pair in bad:
        left[pair[0]].add(pair)
        left[pair[1]].add(pair)
    chosen: list[int] = []
    while left:
        worst = max(left, key=lambda n: (len(left[n]), -n))
        if not left[worst]:
            break
        chosen.append(worst)
        for pair in left.pop(worst):
            other = pair[1] if pair[0] == worst else pair[0]
            left.get(other, set()).discard(pair)
    return chosen


def _worst(bad: Iterable[tuple[int, int]], cover: list[int]) -> tuple[int, ...]:
    counts = Counter(n for pair in bad for n in pair)
    rest = sorted(counts.keys() - set(cover), key=lambda n: (-counts[n], n))
    return tuple(sorted([*cover, *rest][:MAX_DRAWN]))


def _tally(node_rank: int, worst: dict[tuple[int, int], int]) -> NodeTally:
    away = [rank for (src, _), rank in worst.items() if src == node_rank]
    back = [rank for (_, dst), rank in worst.items() if dst == node_rank]
    return NodeTally(node_rank, sum(r >= _ERROR for r in away), len(away), sum(r >= _ERROR for r in back), len(back))


def _cells(reach: Reachability, wanted: set[tuple[int, int]]) -> dict[tuple[int, int], Cell]:
    paths: dict[tuple[int, int], list[PathProbe]] = defaultdict(list)
    for path in reach.paths:
        if (path.src, path.dst) in wanted:
            paths[path.src, path.dst].append(path)
    datagrams: dict[tuple[int, int], list[DatagramProbe]] = defaultdict(list)
    for probe in reach.datagrams:
        if (probe.src, probe.dst) in wanted:
            datagrams[probe.src, probe.dst].append(probe)
    return {pair: _cell(pair, tried, datagrams.get(pair, [])) for pair, tried in paths.items()}


def known(outcome: str) -> str:
    """An outcome of the list above; anything else counts as an error."""
    return outcome if outcome in OUTCOMES else "error"


def _cell(pair: tuple[int, int], tried: list[PathProbe], datagrams: list[DatagramProbe]) -> Cell:
    worst = max((known(p.outcome) for p in tried), key=OUTCOMES.index)
    rtt_s = min((p.rtt_s for p in tried if p.rtt_s is not None), default=None)
    rate = max((p.throughput_gb_per_s for p in tried if p.throughput_gb_per_s is not None), default=None)
    return Cell(*pair, worst, rtt_s, rate, _details(tried, datagrams, rtt_s, rate))


def _details(
    tried: list[PathProbe], datagrams: list[DatagramProbe], rtt_s: float | None, rate: float | None
) -> tuple[Phrase, ...]:
    parts = [_of_path(p) for p in tried if p.outcome != "ok"][:8]
    num_ok = sum(p.outcome == "ok" for p in tried)
    if num_ok:
        parts.append(
            said(
                "{num} ok ({kinds})[[, rtt {rtt}]][[, {rate}]]",
                num=num_ok,
                kinds=tuple(said("{of}", of=kind) for kind in sorted({p.kind for p in tried if p.outcome == "ok"})),
                rtt=None if rtt_s is None else units.time(rtt_s),
                rate=None if rate is None else units.bandwidth_with_unit(rate),
            )
        )
    return (*parts, *(found for probe in datagrams if (found := _of_datagrams(probe)) is not None))


def _of_path(path: PathProbe) -> Phrase:
    """`data 10.0.0.2:40001 stuck at 9000 B, passed 64 1400 B`."""
    return said(
        "{of} {address}:{port} {outcome}[[ at {stuck} B]][[, passed {passed} B]][[, from {source}]][[ ({detail})]]",
        of=path.kind,
        address=path.address,
        port=path.port,
        outcome=path.outcome,
        stuck=path.stuck_bytes,
        passed=" ".join(map(str, path.passed_bytes)) or None,
        source=path.src_address or None,
        detail=words_of(path, "detail") or None,
    )


def _of_datagrams(probe: DatagramProbe) -> Phrase | None:
    """What was lost on the way; None when everything sent was received."""
    lost = [n for n in probe.sent_bytes if n not in probe.received_bytes and n not in probe.too_big_bytes]
    if not lost:
        return None
    if len(lost) == len(probe.sent_bytes):
        return said("UDP {address}: nothing arrived", address=probe.address)
    sizes = " ".join(map(str, lost))
    return said("UDP {address}: {sizes} B lost, smaller ones arrived", address=probe.address, sizes=sizes)
