"""Reads a matrix of rates between pairs: a hot row is a sender, a hot column a receiver, a hot cell a link.

Both a row and a column are a member.  What differs by no more than the cells differ anyway is not named.
"""

import math
from collections.abc import Iterable, Mapping
from statistics import median

from msgspec import Struct

from allready.judging.majority import is_minority
from allready.model import PairPoint

SLOW_MEMBER = 0.88
"""Of the typical member; its 2 (N - 1) cells together differ by a few percent where each differs by 10 %."""
SLOW_SIDE = 0.85
"""Of a row or a column alone."""
SLOW_LINK = 0.85
"""Of what its two ends reach with others.  One pair alone differs more than that by accident, but not twice: pairs that
look slow are measured again (`suspects`)."""
GAP = 1.5
"""How much wider than the others differ must be what lies between slow members and them."""
SURE = 4.0
"""So many standard errors: the standard deviation of all cells over the root of the number of cells."""
MIN_MEMBERS = 4
"""Members from which one can be distinguished from the others."""

Cells = Mapping[tuple[int, int], float]


class MatrixReading(Struct, frozen=True, kw_only=True):
    """Who is slow, with its share of the typical rate: members (both ways), senders, receivers, links (a, b), a < b."""

    typical_gb_per_s: float = 0.0
    members: dict[int, float] = {}
    senders: dict[int, float] = {}
    receivers: dict[int, float] = {}
    links: dict[tuple[int, int], float] = {}
    failed: tuple[tuple[int, int], ...] = ()  # links over which nothing came, in one direction or both

    @property
    def is_clear(self) -> bool:
        """Whether nothing is slow."""
        return not (self.members or self.senders or self.receivers or self.links)


def by_rail(points: Iterable[PairPoint]) -> dict[str, tuple[PairPoint, ...]]:
    """The pairs of each network between the nodes; one that has no name where there is only one."""
    found: dict[str, list[PairPoint]] = {}
    for point in points:
        found.setdefault(point.rail, []).append(point)
    return {rail: tuple(of) for rail, of in found.items()}


def read_matrix(points: Iterable[PairPoint]) -> MatrixReading:
    """What stands out while most members are as they should be; nothing of fewer than four members."""
    points = tuple(points)
    cells = {(p.sender, p.receiver): p.gb_per_s for p in points if p.gb_per_s is not None and p.gb_per_s > 0}
    bad = {p.ends for p in points if p.gb_per_s is None}
    names = sorted({m for pair in cells for m in pair})
    failed = tuple(sorted(bad))
    if len(names) < MIN_MEMBERS:
        return MatrixReading(failed=failed)
    scores = {m: median(rate for pair, rate in cells.items() if m in pair) for m in names}
    typical = median(scores.values())
    members, left = _slow_members(scores, cells)
    if left is None:
        return MatrixReading(typical_gb_per_s=typical, failed=failed)
    senders = _slow_side(left, 0, typical)
    receivers = _slow_side(left, 1, typical)
    for both in senders.keys() & receivers.keys():
        members[both] = max(senders.pop(both), receivers.pop(both))
    links = _slow_links(left, {*members, *senders, *receivers}, typical)
    return MatrixReading(
        typical_gb_per_s=typical, members=members, senders=senders, receivers=receivers, links=links, failed=failed
    )


def suspects(reading: MatrixReading, pairs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The pairs (a, b), a < b, on which a reading rests that names a rank: to be measured again."""
    accused = {*reading.members, *reading.senders, *reading.receivers}
    known = {(min(pair), max(pair)) for pair in pairs}
    return tuple(sorted(pair for pair in known if accused & {*pair} or pair in reading.links))


def _slow_members(scores: Mapping[int, float], cells: Cells) -> tuple[dict[int, float], Cells | None]:
    """Members that are slow both ways, the slowest first, and the cells without them; None where too many are."""
    typical = median(scores.values())
    apart = _apart(cells, (0, 1))
    found: dict[int, float] = {}
    left = dict(cells)
    while True:
        names = sorted({m for pair in left for m in pair})
        rates = {m: median(rate for pair, rate in left.items() if m in pair) for m in names}
        sides = {m: max(_side(left, m, 0, typical), _side(left, m, 1, typical)) for m in names}
        slow = [
            m
            for m in names
            if m in apart
            and max(rates[m], sides[m]) < min(SLOW_MEMBER, _sure(left, {m}, 2 * (len(names) - 1), typical)) * typical
        ]
        if not slow:
            return found, left
        worst = min(slow, key=lambda m: rates[m])
        found[worst] = rates[worst] / typical
        left = {pair: rate for pair, rate in left.items() if worst not in pair}
        if not is_minority(len(found), len(scores)):
            return {}, None


def _side(cells: Cells, member: int, side: int, default: float) -> float:
    """The median of what a member sends (0) or receives (1)."""
    return median([rate for pair, rate in cells.items() if pair[side] == member] or [default])


def _slow_side(cells: Cells, side: int, typical: float) -> dict[int, float]:
    names = {pair[side] for pair in cells}
    rates = {m: _side(cells, m, side, typical) / typical for m in sorted(names)}
    others = {m: {pair: rate for pair, rate in cells.items() if pair[side] != m} for m in rates}
    apart = _apart(cells, (side,))
    slow = {
        m: share
        for m, share in rates.items()
        if m in apart and share < min(SLOW_SIDE, _sure(others[m], set(), len(names) - 1, typical))
    }
    return slow if is_minority(len(slow), len(names)) else {}


def _slow_links(cells: Cells, accused: set[int], typical: float) -> dict[tuple[int, int], float]:
    """Links that are slow beside what their own ends reach with others."""
    found = {}
    for (a, b), rate in cells.items():
        if a > b or (b, a) not in cells or {a, b} & accused:
            continue
        both = (rate + cells[b, a]) / 2
        if both >= SLOW_LINK * typical:
            continue
        others = {pair: r for pair, r in cells.items() if {*pair} != {a, b}}
        ends = [median([r for pair, r in others.items() if end in pair] or [typical]) for end in (a, b)]
        share = both / min(typical, *ends)
        if share < min(SLOW_LINK, _sure(others, set(), 2, typical)):
            found[a, b] = share
    return found


def _apart(cells: Cells, sides: tuple[int, ...]) -> frozenset[int]:
    """The members that a gap separates from the others, wider than these differ among themselves.

    Members that differ by a few percent each have a last one too.  The rate of a pair is that of its slower member:
    what a member can do shows in the upper quarter of its pairs.
    """
    of: dict[int, list[float]] = {}
    for pair, rate in cells.items():
        for side in sides:
            of.setdefault(pair[side], []).append(rate)
    able = sorted((sorted(rates)[round(0.75 * (len(rates) - 1))], member) for member, rates in of.items())
    for count in range((len(able) - 1) // 2, 0, -1):
        last = able[count - 1][0]
        is_slow = last < SLOW_MEMBER * able[len(able) // 2][0]
        if is_slow and able[count][0] - last > GAP * (able[-1][0] - able[count][0]):
            return frozenset(member for _, member in able[:count])
    return frozenset()


def _sure(cells: Cells, without: set[int], num_cells: int, typical: float) -> float:
    """Below which share of the typical rate so many cells are no accident, by how much those of the others differ."""
    rates = [rate for pair, rate in cells.items() if not without & {*pair}]
    if not rates:
        return 0.0
    middle = median(rates)
    deviation = 1.4826 * median(abs(rate - middle) for rate in rates)
    errors = SURE * (1 + 4 / len(rates))  # a deviation from few cells is itself uncertain
    return 1 - errors * deviation / typical / math.sqrt(max(1, num_cells))
