"""The recorder's ring of one rank, read again and again: what is new since the last time, as samples of its pace."""

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import pairwise
from statistics import median
from typing import Any

import msgspec
from msgspec import Struct, field

from allready.evidence.flight.generations import Generations
from allready.evidence.flight.given import Given, given_of, number_of
from allready.evidence.flight.names import BACKENDS_WITH_STATES, dtype_name, element_bytes, operation_name
from allready.live.digests import UNKNOWN, digests_of, with_root
from allready.model.live import PaceSample

MAX_BYTES = 16 << 20
MAX_OPERATIONS = 600
"""Of one group in one sample; of more, the newest."""
MAX_GROUPS = 256
MAX_KNOWN = 4096
_KEPT_TIMES = 65
_MAX_NS = 1 << 62


class RingEntry(msgspec.Struct, frozen=True, gc=False):
    """One operation as the recorder writes it; what is not needed here is passed over unread."""

    profiling_name: str = ""
    collective_seq_id: int | None = None
    op_id: int | None = None
    record_id: int | None = None
    is_p2p: bool = False
    process_group: tuple[str, str] | None = None
    pg_id: int | None = None
    input_sizes: list[list[int]] = []
    output_sizes: list[list[int]] = []
    input_dtypes: list[str] = []
    output_dtypes: list[str] = []
    state: str | None = None
    retired: bool = False
    time_created_ns: int | None = None
    time_discovered_completed_ns: int | None = None


class _Ring(msgspec.Struct, frozen=True):
    entries: list[RingEntry] = []
    arguments: Any = None


_DECODER = msgspec.json.Decoder(_Ring)
_NEXT_ENTRY = b',{"'
"""Nowhere inside of an entry but in an odd name, after which nothing can be decoded and all is read."""


class _Group(Struct):
    last_ns: int = 0
    last_record: int = -1
    created_s: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT_TIMES))
    num: int = 0
    generation: int = 0


class RingPace(Struct):
    """What was read of one rank's ring so far."""

    rank: int
    problem: str | None = None
    _mark: bytes = b""
    """The last entry before the first one that may still be news, as the ring writes its number."""
    _groups: dict[str, _Group] = {}
    _known: dict[Any, tuple[int, int]] = {}
    _generations: Generations = field(default_factory=Generations)

    def take(self, ring: bytes) -> tuple[PaceSample, ...]:
        """One sample for each group that has something new; () for a ring that is damaged (`problem` has the reason).

        An operation of a backend that records completion is held back until it completed, so that every operation is
        sampled once.
        """
        self.problem = None
        if len(ring) > MAX_BYTES:
            self.problem = f"the ring of rank {self.rank} is larger than {MAX_BYTES >> 20} MiB"
            return ()
        try:
            ring_ = self._entries(ring)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.problem = f"the ring of rank {self.rank} cannot be read: {error}"
            return ()
        entries = ring_.entries
        held = next((at for at, entry in enumerate(entries) if _is_usable(entry) and _is_held(entry)), len(entries))
        if held and (number := entries[held - 1].record_id) is not None:
            self._mark = b'"record_id":%d,' % number
        by_group: dict[str, list[RingEntry]] = {}
        for entry in entries:
            if _is_usable(entry):
                name = entry.process_group[0] if entry.process_group else str(entry.pg_id or 0)
                if name in by_group or len(by_group) < MAX_GROUPS:
                    by_group.setdefault(name, []).append(entry)
        given = given_of(ring_.arguments)
        return tuple(s for name, found in by_group.items() if (s := self._sample(name, found, given)) is not None)

    def _entries(self, ring: bytes) -> _Ring:
        """What comes after the mark, or everything: most of a ring is known from the last time, and reading costs."""
        at = ring.rfind(self._mark) if self._mark else -1
        if at >= 0:
            begin = ring.find(_NEXT_ENTRY, at)
            if begin < 0:
                return _Ring()
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return _DECODER.decode(b'{"entries":[' + ring[begin + 1 :])
        return _DECODER.decode(ring)

    def period_s(self) -> float | None:
        """Median time between the last operations of the group with the most of them."""
        busiest = max(self._groups.values(), key=lambda g: g.num, default=None)
        if busiest is None or len(busiest.created_s) < 3:
            return None
        return median(b - a for a, b in pairwise(busiest.created_s))

    def num_operations(self) -> int:
        """Of the busiest group, as far as they were seen."""
        return max((g.num for g in self._groups.values()), default=0)

    def _sample(self, name: str, entries: list[RingEntry], given: Mapping[tuple[str, int], Given]) -> PaceSample | None:
        group = self._groups.setdefault(name, _Group())
        fresh = list(self._fresh(group, entries))
        if not fresh:
            return None
        begins = [at for at, entry in enumerate(fresh) if self._begins(name, entry)]
        group.generation += len(begins)
        fresh = fresh[begins[-1] :] if begins else fresh
        last = fresh[-1]
        group.last_ns, group.last_record = last.time_created_ns or 0, _number(last)
        by_seq: dict[int, list[RingEntry]] = {}  # one call on many tensors has many entries of one number
        for entry in fresh:
            by_seq.setdefault(entry.collective_seq_id or 0, []).append(entry)
        group.num += len(by_seq)
        group.created_s.extend(_seconds(entries[0].time_created_ns) for entries in by_seq.values())
        rows = list(by_seq.items())[-MAX_OPERATIONS:]
        completed = [max(_seconds(e.time_discovered_completed_ns) for e in entries) for _, entries in rows]
        judged = [self._judged(entries) for _, entries in rows]
        digests = [digest for digest, _ in judged]
        if given:
            digests = [
                _with_root(d, entries, given.get((name, number_of(entries[0].profiling_name, seq, entries[0].op_id))))
                for d, (seq, entries) in zip(digests, rows, strict=True)
            ]
        return PaceSample(
            rank=self.rank,
            group=name[:200],
            generation=group.generation,
            seqs=tuple(seq for seq, _ in rows),
            created_s=tuple(_seconds(entries[0].time_created_ns) for _, entries in rows),
            completed_s=tuple(completed) if any(completed) else (),
            digests=tuple(digests),
            size_bytes=tuple(size for _, size in judged),
        )

    def _begins(self, name: str, entry: RingEntry) -> bool:
        backend = entry.profiling_name.partition(":")[0]
        return self._generations.begins(name, backend, entry.pg_id, entry.collective_seq_id or 0)

    @staticmethod
    def _fresh(group: _Group, entries: list[RingEntry]) -> Iterator[RingEntry]:
        for entry in entries:
            created = entry.time_created_ns or 0
            if (created, _number(entry)) <= (group.last_ns, group.last_record):
                continue
            if _is_held(entry):
                return  # later ones of this group cannot have completed before it
            yield entry

    def _judged(self, entries: list[RingEntry]) -> tuple[int, int]:
        """Digest and size, remembered: a loop makes the same few operations over and over."""
        key = tuple(
            (e.profiling_name, str(e.input_sizes), str(e.output_sizes), tuple(e.input_dtypes), tuple(e.output_dtypes))
            for e in entries
        )
        found = self._known.get(key)
        if found is None:
            found = next(iter(digests_of(map(_as_recorded, entries)).values()), UNKNOWN), _bytes_of(entries)
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[key] = found
        return found


def _with_root(digest: int, entries: list[RingEntry], given: Given | None) -> int:
    """With the root that the beacon noted for just this operation."""
    if given is None or len(entries) != 1 or operation_name(entries[0].profiling_name)[0] != given.operation:
        return digest
    return with_root(digest, given.root)


def _is_usable(entry: RingEntry) -> bool:
    name = entry.profiling_name
    return (
        entry.collective_seq_id is not None
        and 0 <= entry.collective_seq_id < _MAX_NS
        and 0 < (entry.time_created_ns or 0) < _MAX_NS
        and 0 <= (entry.time_discovered_completed_ns or 0) < _MAX_NS
        and not entry.is_p2p
        and ":send" not in name[:16]
        and ":recv" not in name[:16]
        and ":coalesced" not in name[:24]  # of several operations, mostly sends and receives
    )


def _is_held(entry: RingEntry) -> bool:
    """Whether it is held back until it has completed."""
    is_done = bool(entry.time_discovered_completed_ns) or entry.retired or entry.state == "completed"
    return not is_done and entry.profiling_name.partition(":")[0] in BACKENDS_WITH_STATES


def _number(entry: RingEntry) -> int:
    return entry.record_id if entry.record_id is not None else -1


def _as_recorded(entry: RingEntry) -> dict[str, Any]:
    names = ("collective_seq_id", "profiling_name", "input_sizes", "input_dtypes", "output_sizes", "output_dtypes")
    return {name: getattr(entry, name) for name in names}


def _seconds(time_ns: int | None) -> float:
    return (time_ns or 0) / 1e9


def _bytes_of(entries: list[RingEntry]) -> int:
    """What goes in or what comes out, whichever is more; 0 when a dtype is not known."""
    total = 0
    for entry in entries:
        sides = ((entry.input_sizes, entry.input_dtypes), (entry.output_sizes, entry.output_dtypes))
        widths = [(element_bytes(dtype_name(dtypes[0])) if dtypes else None) or 0 for _, dtypes in sides]
        total += max(_elements(shapes) * width for (shapes, _), width in zip(sides, widths, strict=True))
    return min(total, _MAX_NS)


def _elements(shapes: list[list[int]]) -> int:
    total = 0
    for shape in shapes:
        count = 1
        for size in shape[:32]:
            count = min(count * max(0, size), _MAX_NS)
        total += count
    return min(total, _MAX_NS)
