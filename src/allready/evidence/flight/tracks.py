"""One rank's collectives in one group by sequence number, in a form that is compared at the speed of memory.

Operations of one coalesced group share a sequence number; only the last entry of such a run gets a state.
"""

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from allready.evidence.flight.columns import RETIRED
from allready.evidence.flight.groups import Group
from allready.evidence.flight.names import element_bytes
from allready.evidence.operation_names import ANY
from allready.evidence.reading import FlightDump, FlightRing, FlightShape
from allready.model import Operation

SCHEDULED, STARTED, COMPLETED, UNKNOWN = range(4)
STATE_NAMES = ("scheduled", "started", "completed", None)

COMPARED_INPUT = frozenset({"all_reduce", "all_gather", "reduce_scatter", "reduce", "gather"})
COMPARED_OUTPUT = frozenset({"broadcast", "scatter"})  # operations of which all members must give (or get) equally much
MAX_HOLES = 4
"""A track may be so many times longer than its entries: numbers may be missing, but not most of them."""


class Codes:
    """What operations of a group must have in common, each different one with a number from 1."""

    def __init__(self, *, by_total: bool) -> None:
        self.by_total = by_total
        self._codes: dict[Any, int] = {}

    def of(self, key: Any) -> int:
        """The number of a key; ANY for an incomparable one."""
        return ANY if key is None else self._codes.setdefault(key, len(self._codes) + 1)

    def key(self, shape: FlightShape, num_in: int, num_out: int) -> Any:
        """What must be equal on all ranks, or None when that is not recorded."""
        if shape.name in COMPARED_INPUT and "_v" not in shape.raw:
            sizes, dtypes, total = shape.in_sizes, shape.in_dtypes, num_in
        elif shape.name in COMPARED_OUTPUT:
            sizes, dtypes, total = shape.out_sizes, shape.out_dtypes, num_out
        else:
            return (shape.name, (), ())
        if sizes is not None and not self.by_total:
            return (shape.name, tuple(map(math.prod, sizes)), tuple(sorted(set(dtypes))))
        if total < 0:
            return None
        return (shape.name, (total,), tuple(sorted(set(dtypes))))


class Track(Struct, kw_only=True):
    """Collectives from number `lo` on.

    `codes`: what was done (see `Codes`).  `first`, `last`: the entries of the ring that belong to each number (-1 where
    none is recorded); a coalesced group has several.  `p2p`: runs of sends and receives, as (first, last) entries.
    """

    rank: int
    dump: FlightDump
    ring: FlightRing
    lo: int
    codes: "array[int]"
    first: "array[int]"
    last: "array[int]"
    p2p: list[tuple[int, int]] = []

    @property
    def hi(self) -> int:
        """The last number; lo - 1 when there is none."""
        return self.lo + len(self.codes) - 1

    def state(self, entry: int) -> int:
        """Scheduled, started, completed or unknown."""
        recorded = self.ring.state[entry]
        if self.dump.completes_by_retirement:
            return COMPLETED if recorded & RETIRED else SCHEDULED
        return recorded & 3

    def timed_out(self, entry: int) -> bool:
        """The watchdog gave it up: no longer waited for, and not completed."""
        recorded = self.ring.state[entry]
        return bool(recorded & RETIRED) and recorded & 3 < COMPLETED and not self.dump.completes_by_retirement

    def numels(self, entry: int) -> tuple[int, int]:
        """Elements in and out, -1 when not recorded."""
        return numels(self.dump, self.ring, entry)


def numels(dump: FlightDump, ring: FlightRing, entry: int) -> tuple[int, int]:
    """Elements of all input and of all output tensors of an entry, -1 when not recorded."""
    if len(ring.num_in):
        return ring.num_in[entry], ring.num_out[entry]
    shape = dump.shapes[ring.shape[entry]]
    return _total(shape.in_sizes), _total(shape.out_sizes)


def _total(sizes: Sequence[Sequence[int]] | None) -> int:
    return -1 if sizes is None else sum(map(math.prod, sizes))


def is_own_line(track: Track, seq: int, others: Iterable[Track]) -> bool:
    """Whether the call with this number was made where none of the other ranks ever makes one, in whatever group, as
    far as their rings go; False where a ring does not tell lines."""
    at = track.first[seq - track.lo]
    if at < 0 or not len(track.ring.site) or not track.ring.site[at]:
        return False
    stack = track.dump.stacks[track.ring.site[at]]
    asked = [other for other in others if other is not track]
    return bool(asked) and all(len(other.ring.site) and stack not in other.dump.stacks for other in asked)


def tracks_of(group: Group) -> tuple[dict[int, Track], Codes]:
    """The tracks of all members that have entries of this group."""
    rings = [(rank, group.ring(rank)) for rank in group.dumps]
    codes = Codes(by_total=any(ring is not None and len(ring.num_in) for _, ring in rings))
    return {r: _track(r, group.dumps[r], ring, codes) for r, ring in rings if ring is not None and len(ring)}, codes


def _track(rank: int, dump: FlightDump, ring: FlightRing, codes: Codes) -> Track:
    used = set(ring.shape)
    low, high = ring.seq[0], ring.seq[-1]
    plain = not any(dump.shapes[c].is_p2p for c in used) and high - low + 1 == len(ring)
    if plain and low >= 0 and list(ring.seq) == list(range(low, high + 1)):
        entries = array("i", range(len(ring)))
        if len(ring.num_in):
            done = array(
                "I",
                [
                    codes.of(codes.key(dump.shapes[c], n, m))
                    for c, n, m in zip(ring.shape, ring.num_in, ring.num_out, strict=True)
                ],
            )
        else:
            known = {
                c: codes.of(codes.key(s, _total(s.in_sizes), _total(s.out_sizes)))
                for c in used
                for s in (dump.shapes[c],)
            }
            done = array("I", [known[c] for c in ring.shape])
        return Track(rank=rank, dump=dump, ring=ring, lo=low, codes=done, first=entries, last=entries)
    return _track_of_runs(rank, dump, ring, codes)


def _track_of_runs(rank: int, dump: FlightDump, ring: FlightRing, codes: Codes) -> Track:
    collective: dict[int, tuple[int, int]] = {}
    p2p: list[tuple[int, int]] = []
    for is_p2p, seq, first, last in _runs(dump, ring):
        if is_p2p:
            p2p.append((first, last))
        else:
            collective[seq] = (collective.get(seq, (first, last))[0], last)
    numbers = sorted(collective)
    most = MAX_HOLES * len(numbers) + 1000
    numbers = [n for n in numbers if n > numbers[-1] - most]
    lo = numbers[0] if numbers else 0
    length = numbers[-1] - lo + 1 if numbers else 0
    done, firsts, lasts = array("I", [ANY]) * length, array("i", [-1]) * length, array("i", [-1]) * length
    for seq in numbers:
        first, last = collective[seq]
        firsts[seq - lo], lasts[seq - lo] = first, last
        keys = [
            codes.key(dump.shapes[ring.shape[i]], *numels(dump, ring, i))
            for i in range(first, last + 1)
            if ring.seq[i] == seq and not dump.shapes[ring.shape[i]].is_p2p
        ]
        done[seq - lo] = codes.of(None if None in keys else keys[0] if len(keys) == 1 else tuple(keys))
    return Track(rank=rank, dump=dump, ring=ring, lo=lo, codes=done, first=firsts, last=lasts, p2p=p2p)


def _runs(dump: FlightDump, ring: FlightRing) -> Iterator[tuple[bool, int, int, int]]:
    """(is p2p, number, first entry, last entry) of consecutive entries that were launched together."""
    start, current = 0, (False, -1)
    for i, seq in enumerate(ring.seq):
        shape = dump.shapes[ring.shape[i]]
        is_p2p = shape.is_p2p or (shape.name == "coalesced" and i > start and current[0])
        number = (ring.p2p_seq[i] if len(ring.p2p_seq) else 0) or seq
        if is_p2p and not shape.is_p2p:
            number = current[1]  # the end of a batch of sends and receives, recorded as a collective
        here = (is_p2p, number if is_p2p else seq)
        if i == 0:
            current = here
        elif here != current:
            yield (*current, start, i - 1)
            start, current = i, here
    if len(ring):
        yield (*current, start, len(ring) - 1)


def operation(group: Group, track: Track, first: int, last: int | None = None) -> Operation:
    """The operation of one entry, or of the coalesced group that the entries `first` to `last` make."""
    last = first if last is None or last < first else last
    dump, ring = track.dump, track.ring
    seq = ring.seq[first]
    entries = [i for i in range(first, last + 1) if dump.shapes[ring.shape[i]].name != "coalesced"] or [first]
    shapes = [dump.shapes[ring.shape[i]] for i in entries]
    shape = shapes[0]
    takes_output = shape.name in {"scatter", "recv"} and not shape.in_sizes
    counts = [track.numels(i)[1 if takes_output else 0] for i in entries]
    sizes = [s.out_sizes if takes_output else s.in_sizes for s in shapes]
    dtypes = [d for s in shapes for d in (s.out_dtypes if takes_output else s.in_dtypes)[:1]]
    dtype = dtypes[0] if len(set(dtypes)) == 1 else None
    total = sum(counts) if counts and min(counts) >= 0 else None
    width = element_bytes(dtype) if dtype else None
    peer = shape.dst if shape.name == "send" else shape.src if shape.name == "recv" else None
    return Operation(
        seq=ring.p2p_seq[first] if shape.is_p2p and len(ring.p2p_seq) and ring.p2p_seq[first] else seq,
        name=shape.name if len({s.name for s in shapes}) == 1 else "coalesced",
        num_elements=total,
        sizes=tuple(dims for one in sizes for dims in one or ())[:64],
        dtype=dtype,
        root=shape.root if peer is None else group.global_rank(peer),
        size_bytes=total * width if total is not None and width else None,
        state=STATE_NAMES[track.state(last)],
        created_s=_seconds(ring.created_ns, first),
        started_s=_seconds(ring.started_ns, last),
        completed_s=_seconds(ring.completed_ns, last),
        timeout_s=shape.timeout_s,
        site=dump.sites[ring.site[first]] if len(ring.site) else None,
        is_p2p=shape.is_p2p,
    )


def operation_at(group: Group, track: Track, seq: int) -> Operation | None:
    """The collective with this number, None when the ring does not hold it."""
    at = seq - track.lo
    if not 0 <= at < len(track.first) or track.first[at] < 0:
        return None
    return operation(group, track, track.first[at], track.last[at])


def _seconds(column: Sequence[int], entry: int) -> float | None:
    return column[entry] / 1e9 if len(column) and column[entry] else None
