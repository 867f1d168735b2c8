"""How far ranks came by the words of torch's watchdog: one `GroupProgress` per process group that it speaks of."""

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from allready.evidence.flight.names import operation_name
from allready.evidence.join.identity import MAX_RANKS, Identities
from allready.model import CallSite, Event, GroupProgress, Operation, Position, Recorder
from allready.patterns import compiled

TAG = r"\[PG (?:ID \d+ PG GUID )?(?P<name>[^\s(\]]+) ?(?:\((?P<desc>[^)]*)\))?(?: Rank (?P<rank>\d+))?\]"
_WORLD = "0"
_UNNAMED = "of unknown name"  # for a reader
_GAVE_UP = "Timeout at NCCL work"
_OF_ONE_OPERATION = {"torch.watchdog_timeout", "torch.async_exception"}
SPEAKING = {*_OF_ONE_OPERATION, "torch.pg_status", "torch.dump_signal"}
_NUMBERS = ("enqueued", "completed", "started")
_OTHER_GROUP = 1_000
"""A rank that names no group, and waits in operations with numbers so far apart, waits in several groups."""


def watchdog_progress(events: Sequence[Event], identities: Identities) -> list[GroupProgress]:
    """Positions of all ranks of which the watchdog wrote anything; groups are named as in flight-recorder dumps."""
    by_rank: dict[int, list[Event]] = {}
    for event in events:
        if event.signature not in SPEAKING:
            continue
        rank = identities.rank(event.origin)
        if rank is not None and rank < MAX_RANKS:
            by_rank.setdefault(rank, []).append(event)
    if not by_rank:
        return []
    groups: dict[str | None, dict[int, Position]] = {}
    labels: dict[str, str] = {}
    nameless: dict[int, Position] = {}
    for rank, of_rank in by_rank.items():
        for name, desc, position in _positions(of_rank):
            if name is None:
                nameless[rank] = position
                continue
            groups.setdefault(name, {})[rank] = position
            labels[name] = desc or labels.get(name, "")
    _add_nameless(groups, nameless)
    seen = [r for e in events for r in (identities.rank(e.origin),) if r is not None and r < MAX_RANKS]
    world_size = max([identities.world_size, *(r + 1 for r in seen)], default=0)
    return [
        GroupProgress(
            group=_UNNAMED if name is None else name,
            is_named=name is not None,
            source=Recorder.WATCHDOG,
            label=label,
            members=tuple(range(world_size)) if _is_world(name, label) else (),
            size=identities.world_size if _is_world(name, label) else 0,
            positions=dict(sorted(positions.items())),
            complete=True,
        )
        for name, positions in sorted(groups.items(), key=lambda item: item[0] or _UNNAMED)
        for label in [labels.get(name or "", "")]
    ]


def _is_world(name: str | None, desc: str) -> bool:
    return desc == "default_pg" or (not desc and name in {"0", "default_pg"})


def _add_nameless(groups: dict[str | None, dict[int, Position]], nameless: Mapping[int, Position]) -> None:
    """Ranks whose lines name no group: they are in the one whose other members wait in the same operation.

    Where no line of any rank names a group, they are taken for the world.  Else it is not known where they belong.
    """
    if not groups and nameless:
        groups[_WORLD] = dict(nameless)
        return
    waited: dict[tuple[object, ...], set[str | None]] = {}
    for name, positions in groups.items():
        for position in positions.values():
            waited.setdefault(_waits_in(position), set()).add(name)
    for rank, position in nameless.items():
        known = waited.get(_waits_in(position), set())
        name = next(iter(known)) if len(known) == 1 else None
        groups.setdefault(name, {}).setdefault(rank, position)


def _waits_in(position: Position) -> tuple[object, ...]:
    stuck = position.stuck
    return () if stuck is None else (stuck.seq, stuck.name, stuck.num_elements)


class _GroupLines(Struct):
    """What one rank's lines say of one group: numbers, the operations spoken of, and those that it gave up."""

    event: Event
    desc: str = ""
    numbers: dict[str, int | None] = {}
    works: dict[int, Operation | None] = {}
    gave_up: set[int] = set()

    def update(self, event: Event, desc: str) -> None:
        """A line of this group."""
        self.event, self.desc = event, desc or self.desc
        for name in _NUMBERS:
            both = (self.numbers.get(name), _int(event.values.get(name)))
            self.numbers[name] = max((n for n in both if n is not None), default=None)

    def spans(self, seq: int) -> bool:
        """Whether the operation with this number was enqueued and did not complete."""
        enqueued, completed = self.numbers.get("enqueued"), self.numbers.get("completed")
        return enqueued is not None and completed is not None and completed < seq <= enqueued

    def add(self, loose: "_Loose") -> None:
        """An operation of this group whose line may not have named it."""
        loose.is_placed = True
        self.works[loose.operation.seq] = loose.operation
        if loose.is_timeout:
            self.gave_up.add(loose.operation.seq)

    def position(self) -> Position | None:
        """The rank waits in the first operation that did not complete: all behind it wait for that one."""
        completed, enqueued = self.numbers.get("completed"), self.numbers.get("enqueued")
        known = [o for o in self.works.values() if o is not None]
        still = sorted(seq for seq in self.works if completed is None or seq > completed)
        stuck = known[-1] if known else None
        if stuck is not None and still:
            stuck = self.works[still[0]] or Operation(seq=still[0], name="")
        if enqueued is None:
            enqueued = max((o.seq for o in known), default=None)
        if enqueued is None:
            return None
        if stuck is None and completed is not None and 0 <= completed < enqueued:
            stuck = Operation(seq=completed + 1, name="")
        return Position(
            enqueued=enqueued,
            completed=completed,
            started=self.numbers.get("started"),
            stuck=stuck,
            time_s=self.event.time_s,
            origin=self.event.origin,
            gave_up=stuck is not None and any(seq >= stuck.seq for seq in self.gave_up),
        )


class _Loose(Struct):
    """An operation from a line that mostly has no group.  `at`: which of the rank's lines it is."""

    at: int
    event: Event
    operation: Operation
    name: str | None
    desc: str
    is_placed: bool = False

    @property
    def is_timeout(self) -> bool:
        return self.event.signature == "torch.watchdog_timeout"


def _positions(lines: Iterable[Event]) -> Iterable[tuple[str | None, str, Position]]:
    """One rank's position in each group; the name is None where no line tells one.

    A time-out's own line has no group: it belongs to the tagged line that follows it (same rank, same number).
    """
    events = list(lines)
    loose = [_loose(at, e) for at, e in enumerate(events) if e.signature in _OF_ONE_OPERATION]
    found: dict[str, _GroupLines] = {}
    for at, event in enumerate(events):
        if event.signature in _OF_ONE_OPERATION:
            continue
        tag = compiled(TAG).search(event.text)
        name = (event.values.get("pg_guid") or (tag["name"] if tag else "")) or _WORLD
        lines_of_group = found.setdefault(name, _GroupLines(event))
        lines_of_group.update(event, event.values.get("pg_desc") or (tag["desc"] if tag else "") or "")
        work = _int(event.values.get("work"))
        if work is None:
            continue
        if lines_of_group.works.setdefault(work, None) is None:
            meant = _meant([o for o in loose if o.operation.seq == work and o.name in {None, name}], at)
            if meant is not None:
                lines_of_group.add(meant)
        if _GAVE_UP in event.text:
            lines_of_group.gave_up.add(work)
    nameless = _place(loose, found)
    for name, lines_of_group in found.items():
        position = lines_of_group.position()
        if position is not None:
            yield name, lines_of_group.desc, position
    if nameless is not None and (position := nameless.position()) is not None:
        yield None, "", position


def _meant(same: Sequence[_Loose], at: int) -> _Loose | None:
    """Which of the operations with one number the line speaks of: the first one in front of it of which no line has
    spoken, since groups side by side stand at one number as well."""
    new = [o for o in same if not o.is_placed]
    return next((o for o in new if o.at < at), new[0] if new else None)


def _place(loose: Sequence[_Loose], found: dict[str, _GroupLines]) -> _GroupLines | None:
    """Operations of which no line with a group speaks: into the group that they name or fit, else into one without a
    name; there only where no group is known.
    """
    is_bare = not found  # versions that print no status, or a log cut short
    left = [o for o in loose if not o.is_placed]
    left = [o for o in left if o.operation.seq] or left[-1:]
    for one in left:
        if one.name is not None:
            found.setdefault(one.name, _GroupLines(one.event, one.desc)).add(one)
    named = dict(found)
    for one in left:
        fitting = [s for s in named.values() if one.operation.seq in s.works or s.spans(one.operation.seq)]
        if not one.is_placed and (len(fitting) == 1 or (is_bare and len(named) == 1)):
            (fitting[0] if fitting else next(iter(named.values()))).add(one)
    left = [o for o in left if not o.is_placed] if is_bare else []
    if not left:
        return None
    nameless = _GroupLines(left[-1].event)
    for one in left:
        if abs(one.operation.seq - left[-1].operation.seq) < _OTHER_GROUP:
            nameless.add(one)
    return nameless


def _loose(at: int, event: Event) -> _Loose:
    tag = compiled(TAG).search(event.text)
    name, desc = ("", "") if tag is None else (tag["name"], tag["desc"] or "")
    return _Loose(at, event, _operation(event), name or None, desc)


def _operation(event: Event) -> Operation:
    timeout_ms = _int(event.values.get("timeout_ms"))
    return Operation(
        seq=_int(event.values.get("seq")) or 0,
        name=operation_name(event.values.get("op", ""))[0],
        num_elements=_int(event.values.get("numel_in")),
        timeout_s=None if timeout_ms is None else timeout_ms / 1000,
        site=CallSite.known(event.values.get("site", "")),
    )


def _int(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"-?\d{1,18}", text) else None
