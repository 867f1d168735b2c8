"""Calls of COLL lines compared: the first operation of a communicator at which its ranks did not do the same."""

from collections.abc import Iterable, Mapping

import numpy as np

from allready.evidence.operations.codes import (
    CHUNK,
    Cursor,
    Table,
    iteration_of,
    num_collectives,
    operation,
    origin_at,
    place_of,
)
from allready.evidence.reading import OpShape, OpStream
from allready.judging.sequence import ANY, Codes, first_difference, num_different, shift_of
from allready.model import Mismatch, Recorder

WINDOW = 256
MAX_SHIFT = 8
MIN_AGREEMENT = 2
"""Operations that must agree again before ranks are called shifted against each other."""


class StreamCalls:
    """A stream's collectives as `sequence.Calls`, numbered from 1; what cannot be read any more is ANY."""

    begin = 1

    def __init__(self, stream: OpStream, table: Table) -> None:
        self.end = num_collectives(stream) + 1
        self._cursor = Cursor(stream, table)
        self._next = 1

    def codes(self, begin: int, end: int) -> Codes:
        """The codes of a range; ranges are asked for in rising order."""
        while self._next < begin:
            skipped = min(CHUNK, begin - self._next)
            self._cursor.take(skipped)
            self._next += skipped
        self._next = end
        found = np.full(end - begin, ANY, dtype=np.int64)
        taken = self._cursor.take(end - begin)
        found[: len(taken)] = taken + 1
        return found


def first_mismatch(
    streams: Mapping[int, OpStream], *, group: str, label: str = "", size: int = 0, complete: bool = False
) -> Mismatch | None:
    """Compare all ranks in lockstep.

    A rank that has fewer operations is `missing` from there on, which is no mismatch.

    Args:
        label: what people call it.
        size: how many ranks it has, also those that left no log.
        complete: every rank's operations are there to the last one.
    """
    if len(streams) < 2:
        return None
    table = Table(streams.values())
    found = first_difference({r: StreamCalls(s, table) for r, s in sorted(streams.items())}, num_members=size)
    if found is None:
        return None
    one, other = found.examples()
    shift = _common_shift(streams, table, found.seq, one, _examples(found.codes, one), complete=complete)
    num_after = abs(shift) if shift is not None else _num_different(streams[one], streams[other], table, found.seq)
    shapes = {rank: table.shapes[code - 1] for rank, code in found.codes.items()}
    return Mismatch(
        group=group,
        source=Recorder.COLL_LOG,
        kind=_kind(shapes[one], shapes[other]),
        seq=found.seq,
        by_rank={r: operation(shape, found.seq) for r, shape in shapes.items()},
        label=label,
        missing=tuple(sorted(set(streams) - set(found.codes))),
        iteration=_iteration(streams, other, found.seq - 1, place_of(streams[other], found.seq - 1)),
        num_after=num_after,
        odd=found.odd,
        shift=shift,
        origins={r: origin_at(streams[r], place_of(streams[r], found.seq - 1)) for r in shapes},
    )


def _examples(codes: Mapping[int, int], one: int) -> list[int]:
    """One rank for every call that differs from that of `one`."""
    first = {code: rank for rank, code in sorted(codes.items(), reverse=True) if code != codes[one]}
    return sorted(first.values())


def _common_shift(
    streams: Mapping[int, OpStream], table: Table, seq: int, one: int, others: Iterable[int], *, complete: bool
) -> int | None:
    """How many operations the other ranks made more (or fewer, negative), if that explains everything that follows."""
    usual = _window(streams[one], table, seq)
    found = {
        shift_of(
            usual,
            _window(streams[other], table, seq),
            surplus=num_collectives(streams[other]) - num_collectives(streams[one]),
            most=MAX_SHIFT,
            least=MIN_AGREEMENT,
            is_whole=complete,
        )
        for other in others
    }
    return found.pop() if len(found) == 1 else None


def _window(stream: OpStream, table: Table, seq: int) -> Codes:
    """What follows from one number on."""
    calls = StreamCalls(stream, table)
    return calls.codes(seq, min(seq + WINDOW, calls.end))


def _kind(usual: OpShape, other: OpShape) -> str:
    if usual.name != other.name:
        return "name"
    if usual.count != other.count:
        return "size"
    if usual.dtype != other.dtype:
        return "dtype"
    return "root" if usual.root != other.root else "redop"


def _num_different(one: OpStream, other: OpStream, table: Table, seq: int) -> int:
    """At how many places two ranks differ from `seq` on, as far as both have operations."""
    a, b = StreamCalls(one, table), StreamCalls(other, table)
    end = min(a.end, b.end)
    places = ((begin, min(begin + CHUNK, end)) for begin in range(seq, end, CHUNK))
    return sum(num_different(a.codes(*place), b.codes(*place)) for place in places)


def _iteration(streams: Mapping[int, OpStream], other: int, index: int, place: int) -> int | None:
    """From the odd rank's markers, else from any rank's."""
    if streams[other].marks:
        return iteration_of(streams[other].marks, place)
    for stream in streams.values():
        if stream.marks:
            return iteration_of(stream.marks, place_of(stream, index))
    return None
