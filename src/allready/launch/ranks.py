"""Which node comes where, and which global ranks it has: from the roll of nodes to the assignment.

Pure: no clock, no network.  Node 0 calls `assign` when all nodes are there; a configuration file is checked by it
beforehand.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from allready.errors import UsageError
from allready.model import Phrase
from allready.model.fill import in_english, said


class Entry(Struct, frozen=True, kw_only=True):
    """One node of the roll.

    `arrival`: a number that grows in the order in which nodes came (a time, or a place in a list).  `is_master`: it
    holds the master's address.
    """

    name: str
    nproc: int
    node_rank: int | None = None
    start_rank: int | None = None
    arrival: float = 0.0
    is_master: bool = False


class Assignment(Struct, frozen=True, kw_only=True):
    """What became of a node.  `entry` is its index in the roll that was given."""

    entry: int
    name: str
    node_rank: int
    ranks: tuple[int, ...]  # global, consecutive


class RanksError(UsageError):
    """The nodes' orders contradict each other.  `nodes`: the names of those concerned, in the order of the message."""

    def __init__(self, template: str, nodes: Iterable[str], **values: object) -> None:
        super().__init__(template, **{name: _english(value) for name, value in values.items()})
        self.nodes, self.values = tuple(nodes), values


def _english(value: object) -> object:
    return in_english(value) if isinstance(value, Phrase) else value


def assign(roll: Sequence[Entry]) -> tuple[Assignment, ...]:
    """A place for every node, by node rank.

    Node ranks given by all hold; by none: the order of the start ranks if these are given, else the master's node,
    then in the order of arrival (ties by name, so that the same roll gives the same answer).  Ranks follow the order
    of the nodes unless start ranks are given.

    Raises:
        RanksError: a node rank or start rank given by some only, twice, outside the range, or with gaps or overlaps.
    """
    if not roll:
        raise RanksError("no node takes part", ())
    for entry in roll:
        if entry.nproc < 1:
            form = "{name} has {num} ranks; a node has at least 1"
            raise RanksError(form, (entry.name,), name=entry.name, num=entry.nproc)
    _all_or_none(roll, "node_rank", "--node-rank")
    _all_or_none(roll, "start_rank", "--start-rank")
    order = _order(roll)
    starts = _starts(roll, order)
    return tuple(
        Assignment(
            entry=index,
            name=roll[index].name,
            node_rank=place,
            ranks=tuple(range(starts[index], starts[index] + roll[index].nproc)),
        )
        for place, index in enumerate(order)
    )


def _order(roll: Sequence[Entry]) -> list[int]:
    indices = range(len(roll))
    if roll[0].node_rank is not None:
        ordered = sorted(indices, key=lambda i: (roll[i].node_rank or 0, roll[i].arrival))
        for place, index in enumerate(ordered):
            entry, rank = roll[index], roll[index].node_rank
            if rank == place:
                continue
            if place and rank == place - 1:
                other = roll[ordered[place - 1]]
                raise RanksError(
                    "{one} and {other} both have --node-rank {rank}",
                    (other.name, entry.name),
                    one=other.name,
                    other=entry.name,
                    rank=rank,
                )
            raise RanksError(
                "no node has node rank {place}: {name} has --node-rank {rank}, and {num} nodes are 0 to {last}",
                (entry.name,),
                place=place,
                name=entry.name,
                rank=rank,
                num=len(roll),
                last=len(roll) - 1,
            )
        return ordered
    if roll[0].start_rank is not None:
        return sorted(indices, key=lambda i: (roll[i].start_rank or 0, roll[i].arrival))
    return sorted(indices, key=lambda i: (not roll[i].is_master, roll[i].arrival, roll[i].name))


def _starts(roll: Sequence[Entry], order: Sequence[int]) -> dict[int, int]:
    starts: dict[int, int] = {}
    if roll[0].start_rank is None:
        following = 0
        for index in order:
            starts[index] = following
            following += roll[index].nproc
        return starts
    expected, before = 0, None
    for index in sorted(order, key=lambda i: (roll[i].start_rank or 0, roll[i].arrival)):
        entry, start = roll[index], roll[index].start_rank or 0
        mine = said(
            "{name} has {ranks} (--start-rank {start})", name=entry.name, ranks=_ranks(start, entry.nproc), start=start
        )
        if start < 0:
            form = "{name}: --start-rank {start} is below 0"
            raise RanksError(form, (entry.name,), name=entry.name, start=start)
        others = None if before is None else _ranks(before.start_rank or 0, before.nproc)
        if start < expected and before is not None:
            raise RanksError(
                "ranks overlap: {before} has {ranks} and {mine}",
                (before.name, entry.name),
                before=before.name,
                ranks=others,
                mine=mine,
            )
        if start > expected:
            gap = _ranks(expected, start - expected)
            if before is None:
                raise RanksError("no node has {gap}: {mine}", (entry.name,), gap=gap, mine=mine)
            raise RanksError(
                "no node has {gap}: {before} has {ranks} and {mine}",
                (before.name, entry.name),
                gap=gap,
                before=before.name,
                ranks=others,
                mine=mine,
            )
        starts[index] = start
        expected, before = start + entry.nproc, entry
    return starts


def _all_or_none(roll: Sequence[Entry], field: str, flag: str) -> None:
    with_it = [entry for entry in roll if getattr(entry, field) is not None]
    without = [entry for entry in roll if getattr(entry, field) is None]
    if with_it and without:
        raise RanksError(
            "{one} has {flag} {value} and {other} gives none; give {flag} on every node or on none",
            (with_it[0].name, without[0].name),
            one=with_it[0].name,
            flag=flag,
            value=getattr(with_it[0], field),
            other=without[0].name,
        )


def _ranks(first: int, number: int) -> Phrase:
    if number == 1:
        return said("rank {first}", first=first)
    return said("ranks {first} to {last}", first=first, last=first + number - 1)
