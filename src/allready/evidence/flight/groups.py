"""Which ranks share a process group: names are given per process, so a name alone is no identity."""

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from allready.evidence.flight.names import operation_name
from allready.evidence.reading import FlightDump, FlightRing, FlightShape
from allready.model import Phrase, ranges
from allready.model.fill import said

WORLD_LABEL = "default_pg"
RATIO_ENTRIES = 200
MAX_MEMBERSHIPS = 1 << 20  # members of all groups together
APART_NS = 600 * 10**9
APART = 50
"""Operations that ranks of one run may be apart: as many as a process launches before it has to wait."""

_OF_NO_RANK = "{source}: belongs to no known rank, so it was not compared with the others"
_OLDER = "{source}: an older dump of rank {rank}, not compared with the others"
_OF_ANOTHER_RUN = "{source}: ends long before the other dumps begin, so it is of another run"


class Group(Struct, kw_only=True):
    """One group over all dumps.  `members` is empty and `size` 0 when no dump tells; `dumps`: of members, by rank."""

    name: str  # in the dumps
    title: str  # unique in the join: the name, with its members where a name is taken twice
    label: str
    members: Sequence[int]
    size: int
    dumps: dict[int, FlightDump] = {}

    @property
    def parties(self) -> Sequence[int]:
        """Its members, as far as known: all, or those that recorded a call."""
        return self.members or [rank for rank in self.dumps if self.ring(rank)]

    def ring(self, rank: int) -> FlightRing | None:
        """The rank's entries of this group."""
        return self.dumps[rank].rings.get(self.name)

    def global_rank(self, pg_rank: int | None) -> int | None:
        """Which rank of the job is rank `pg_rank` of the group."""
        if pg_rank is None:
            return None
        if self.members:
            return self.members[pg_rank] if pg_rank < len(self.members) else None
        return pg_rank if self.is_world else None

    @property
    def is_world(self) -> bool:
        """Whether it is the group of all ranks."""
        return self.label == WORLD_LABEL or (self.name == "0" and not self.label)


def by_rank(dumps: Iterable[FlightDump]) -> tuple[dict[int, FlightDump], list[Phrase]]:
    """One dump for each rank: the one with the newest entries.  Notes say what was left out."""
    chosen: dict[int, FlightDump] = {}
    notes: list[Phrase] = []
    for dump in dumps:
        if dump.rank is None:
            notes.append(said(_OF_NO_RANK, source=dump.origin.source))
            continue
        other = chosen.get(dump.rank)
        if other is not None:
            older = min(dump, other, key=_newness)
            notes.append(said(_OLDER, source=older.origin.source, rank=dump.rank))
            chosen[dump.rank] = dump if older is other else other
        else:
            chosen[dump.rank] = dump
    for rank in _stale(chosen):
        notes.append(said(_OF_ANOTHER_RUN, source=chosen[rank].origin.source))
        del chosen[rank]
    return dict(sorted(chosen.items())), notes


def _stale(dumps: Mapping[int, FlightDump]) -> list[int]:
    """Dumps that an earlier run left: they end long before the others begin, and their groups came to other numbers.

    A clock may be wrong by an hour; but ranks of one run cannot be far apart in what they launched.
    """
    spans = {r: (d.first_ns, d.last_ns) for r, d in dumps.items() if d.first_ns and d.last_ns}
    if len(spans) < 2:
        return []
    newest = max(spans, key=lambda r: spans[r][1])
    begin = min(first for first, last in spans.values() if last >= spans[newest][1] - APART_NS)
    early = sorted(r for r, (_, last) in spans.items() if last < begin - APART_NS)
    reached = [_reached(d) for r, d in dumps.items() if r not in early]
    return [r for r in early if not any(_fits(_reached(dumps[r]), other) for other in reached)]


def _reached(dump: FlightDump) -> dict[str, int]:
    return {name: max(ring.seq) for name, ring in dump.rings.items() if len(ring)}


def _fits(ours: Mapping[str, int], theirs: Mapping[str, int]) -> bool:
    return any(abs(number - theirs[name]) <= APART for name, number in ours.items() if name in theirs)


def _newness(dump: FlightDump) -> tuple[int, int, bool, str]:
    return (dump.last_ns or 0, dump.num_entries, any(dump.stacks[1:]), dump.origin.source)


def groups_of(dumps: Mapping[int, FlightDump]) -> list[Group]:
    """All groups that any dump names; the same name and description with other members is another group."""
    found: dict[tuple[str, str, Sequence[int]], Group] = {}
    unplaced: list[tuple[int, str, str]] = []
    for rank, dump in dumps.items():
        for name, (label, members) in dump.groups.items():
            if not members:
                unplaced.append((rank, name, label))
                continue
            key = (name, label, members)
            group = found.get(key)
            if group is None:
                group = found[key] = Group(name=name, title=name, label=label, members=members, size=len(members))
            if rank in members:
                group.dumps[rank] = dump
    for rank, name, label in unplaced:
        _place(found, dumps[rank], rank, name, label)
    for rank, dump in dumps.items():
        _add_silent(found.values(), rank, dump)
    return _finished([g for g in found.values() if g.dumps])


def _finished(groups: list[Group]) -> list[Group]:
    """In order, each with its size and a title of its own."""
    left = MAX_MEMBERSHIPS
    names = [g.name for g in groups]
    for group in groups:
        if not group.members:
            _measure(group)
        left -= len(group.members)
        if left < 0:
            group.members = ()  # no job is so large; a dump that says so shall not fill the memory
        if names.count(group.name) > 1:
            group.title = f"{group.name} [{ranges(group.members or group.dumps)}]"
    return sorted(groups, key=lambda g: (not g.is_world, _order(g.name), g.title))


def _place(
    found: dict[tuple[str, str, Sequence[int]], Group], dump: FlightDump, rank: int, name: str, label: str
) -> None:
    """A dump that does not tell a group's members: some other dump may."""
    fitting = [
        g
        for g in found.values()
        if g.name == name and rank in g.members and (g.label == label or not label or not g.label)
    ]
    key = (name, label, ())
    if len(fitting) == 1:
        fitting[0].dumps[rank] = dump
        return
    group = found.setdefault(key, Group(name=name, title=name, label=label, members=(), size=0))
    group.dumps[rank] = dump


def _add_silent(groups: Iterable[Group], rank: int, dump: FlightDump) -> None:
    """A member may never have used a group, so that its own dump does not name it."""
    for group in groups:
        if rank not in group.dumps and group.name not in dump.groups and rank in group.members:
            group.dumps[rank] = dump


def _measure(group: Group) -> None:
    """Size, and with it members, of a group that no dump describes (Gloo): an all_gather's output or splits tell it."""
    sizes = {s for dump in group.dumps.values() for s in _sizes(dump, group.name)}
    if len(sizes) != 1:
        return
    (size,) = sizes
    ranks = sorted(group.dumps)
    if group.is_world and ranks[-1] < size:
        group.size, group.members = size, range(size)
    elif len(ranks) == size:
        group.size, group.members = size, tuple(ranks)
    elif len(ranks) < size:
        group.size = size


def _sizes(dump: FlightDump, name: str) -> set[int]:
    ring = dump.rings.get(name)
    if ring is None:
        return set()
    shapes = [dump.shapes[code] for code in set(ring.shape[-RATIO_ENTRIES:])]
    return {size for shape in shapes for size in (_size_of(shape),) if size is not None}


def _size_of(shape: FlightShape) -> int | None:
    if shape.splits is not None:
        return len(shape.splits[0])
    if not shape.in_sizes or not shape.out_sizes:
        return None
    num_in, num_out = sum(map(math.prod, shape.in_sizes)), sum(map(math.prod, shape.out_sizes))
    name = operation_name(shape.raw)[0]
    if name == "all_gather" and "_v" not in shape.raw and num_in and num_out > num_in and num_out % num_in == 0:
        return num_out // num_in
    if name == "reduce_scatter" and "_v" not in shape.raw and num_out and num_in > num_out and num_in % num_out == 0:
        return num_in // num_out
    return None


def _order(name: str) -> tuple[int, int, str]:
    return (0, int(name), "") if name.isascii() and name.isdigit() and len(name) < 10 else (1, 0, name)
