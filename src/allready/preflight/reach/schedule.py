"""Who probes whom, and when: rounds of disjoint pairs, so that a node is busy with one partner at a time.

All pairs meet (a round-robin tournament by the circle method) while `max_rounds` rounds suffice: N - 1 for even N, N
for odd N, so up to 64 nodes by default.  Above that a sample:
every node with its neighbours at ring distances 1, 2, 4, 8, ... (both rails of a rack, neighbouring racks, the far
half of the machine room), then random pairs.
"""

import random
from collections.abc import Sequence

from msgspec import Struct

Pair = tuple[int, int]
Round = tuple[Pair, ...]


class Schedule(Struct, frozen=True):
    """Rounds of pairs (a, b), a < b.  In a round each node occurs at most once; no pair occurs twice."""

    nodes: tuple[int, ...]
    rounds: tuple[Round, ...]

    @property
    def num_pairs(self) -> int:
        return sum(len(r) for r in self.rounds)

    @property
    def num_pairs_all(self) -> int:
        return len(self.nodes) * (len(self.nodes) - 1) // 2

    @property
    def is_sample(self) -> bool:
        return self.num_pairs < self.num_pairs_all

    def partners(self) -> dict[int, tuple[int | None, ...]]:
        """For every node its partner round by round; None: this node has nothing to do in that round."""
        columns: dict[int, list[int | None]] = {r: [None] * len(self.rounds) for r in self.nodes}
        for i, pairs in enumerate(self.rounds):
            for a, b in pairs:
                columns[a][i], columns[b][i] = b, a
        return {r: tuple(column) for r, column in columns.items()}


def make_schedule(nodes: Sequence[int], *, max_rounds: int = 64, seed: str = "") -> Schedule:
    """All pairs if `max_rounds` rounds suffice, else a sample of `max_rounds` rounds.  `max_rounds`: 1 or more."""
    ranks = tuple(sorted(set(nodes)))
    if len(ranks) < 2:
        return Schedule(ranks, ())
    if len(ranks) - 1 + len(ranks) % 2 <= max_rounds:
        return Schedule(ranks, _tournament(ranks))
    return Schedule(ranks, _sample(ranks, max_rounds, seed))


def disjoint_rounds(pairs: Sequence[Pair], *, max_rounds: int) -> tuple[Round, ...]:
    """These pairs in rounds in which no node has two partners; what does not fit into `max_rounds` is left out."""
    rounds: list[list[Pair]] = []
    for pair in pairs:
        free = next((r for r in rounds if not any({*pair} & {*other} for other in r)), None)
        if free is not None:
            free.append(pair)
        elif len(rounds) < max_rounds:
            rounds.append([pair])
    return tuple(tuple(r) for r in rounds)


def _tournament(ranks: tuple[int, ...]) -> tuple[Round, ...]:
    """The circle method: one node stays, the others walk round it; an odd one out rests."""
    circle: list[int | None] = [*ranks] if len(ranks) % 2 == 0 else [*ranks, None]
    half = len(circle) // 2
    rounds = []
    for _ in range(len(circle) - 1):
        facing = zip(circle[:half], reversed(circle[half:]), strict=True)
        rounds.append(tuple(_pair(a, b) for a, b in facing if a is not None and b is not None))
        circle.insert(1, circle.pop())
    return tuple(rounds)


def _sample(ranks: tuple[int, ...], max_rounds: int, seed: str) -> tuple[Round, ...]:
    rounds: list[Round] = []
    distance = 1
    while distance <= len(ranks) // 2 and len(rounds) < max_rounds:
        rounds += _ring(ranks, distance)
        distance *= 2
    del rounds[max_rounds:]
    met = {pair for pairs in rounds for pair in pairs}
    generator = random.Random(seed)  # noqa: S311 - a sample that can be repeated, not a secret
    order = list(ranks)
    while len(rounds) < max_rounds:
        generator.shuffle(order)
        fresh = {_pair(a, b) for a, b in zip(order[::2], order[1::2], strict=False)} - met
        met |= fresh
        rounds.append(tuple(sorted(fresh)))
    return tuple(rounds)


def _ring(ranks: tuple[int, ...], distance: int) -> list[Round]:
    """Every node with the one `distance` further: cycles, whose links alternate over two rounds.

    The last link of a cycle of odd length would meet both of its neighbours; it takes a third round.
    """
    rounds: list[list[Pair]] = [[], [], []]
    seen = [False] * len(ranks)
    for start in range(len(ranks)):
        cycle = []
        at = start
        while not seen[at]:
            seen[at] = True
            cycle.append(ranks[at])
            at = (at + distance) % len(ranks)
        links = [(a, cycle[(i + 1) % len(cycle)]) for i, a in enumerate(cycle)]
        if len(cycle) == 2:
            links = links[:1]
        for i, (a, b) in enumerate(links):
            rounds[2 if len(links) % 2 and i == len(links) - 1 and i else i % 2].append(_pair(a, b))
    return [tuple(r) for r in rounds if r]


def _pair(a: int, b: int) -> Pair:
    return (a, b) if a < b else (b, a)
