"""The first operation of a communicator at which its ranks did not do the same."""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from allready.evidence.operations.codes import (
    CHUNK,
    Cursor,
    Ids,
    Table,
    iteration_of,
    num_collectives,
    operation,
    place_of,
)
from allready.evidence.reading import OpShape, OpStream
from allready.model import Mismatch

WINDOW = 256
MAX_SHIFT = 8
MIN_AGREEMENT = 2
"""Operations that must agree again before ranks are called shifted against each other."""


class _Split(Struct, frozen=True):
    """Where the ranks part: operation numbers at `index` by rank, and what follows from there."""

    index: int
    at: Mapping[int, int]
    following: Mapping[int, Ids]


def first_mismatch(
    streams: Mapping[int, OpStream], *, group: str, label: str = "", complete: bool = False
) -> Mismatch | None:
    """Compare all ranks in lockstep.

    A rank that has fewer operations is `missing` from there on, which is no mismatch.

    Args:
        streams: of the ranks that have one.
        group: name of the communicator.
        label: what people call it.
        complete: every rank's operations are there to the last one.
    """
    if len(streams) < 2:
        return None
    table = Table(streams.values())
    split = _first_split(streams, table)
    if split is None:
        return None
    classes: dict[int, list[int]] = {}
    for rank, number in sorted(split.at.items()):
        classes.setdefault(number, []).append(rank)
    ordered = sorted(classes.items(), key=lambda item: (-len(item[1]), item[1]))
    is_tie = len(ordered[0][1]) == len(ordered[1][1])
    (usual, innocent), others = ordered[0], ordered[1:]
    odd = () if is_tie else tuple(sorted(r for _, ranks in others for r in ranks))
    shift = _common_shift(streams, split, innocent[0], [ranks[0] for _, ranks in others], complete=complete)
    one, other = innocent[0], others[0][1][0]
    place = place_of(streams[other], split.index)
    return Mismatch(
        group=group,
        source="coll log",
        kind=_kind(table.shapes[usual], table.shapes[others[0][0]]),
        seq=split.index + 1,
        by_rank={r: operation(table.shapes[n], split.index + 1) for r, n in sorted(split.at.items())},
        label=label,
        missing=tuple(sorted(set(streams) - set(split.at))),
        iteration=_iteration(streams, other, split.index, place),
        num_after=abs(shift) if shift is not None else _num_different(streams[one], streams[other], table, split.index),
        odd=odd,
        shift=shift,
        origin=streams[other].origin,
    )


def _first_split(streams: Mapping[int, OpStream], table: Table) -> _Split | None:
    cursors = {rank: Cursor(stream, table) for rank, stream in sorted(streams.items())}
    base = 0
    while len(cursors) > 1:
        parts = {rank: cursor.take(CHUNK) for rank, cursor in cursors.items()}
        longest = max(parts.values(), key=len)
        first = min(_first_difference(part, longest) for part in parts.values())
        if first < len(longest):
            following = {
                rank: np.concatenate((part[first:], cursors[rank].take(max(0, WINDOW - (len(part) - first)))))[:WINDOW]
                for rank, part in parts.items()
                if len(part) > first
            }
            return _Split(base + first, {r: int(window[0]) for r, window in following.items()}, following)
        base += CHUNK
        cursors = {rank: cursor for rank, cursor in cursors.items() if len(parts[rank]) == CHUNK}
    return None


def _first_difference(part: Ids, longest: Ids) -> int:
    """Where `part` differs from `longest`; the length of `longest` where it does not as far as it goes."""
    common = longest[: len(part)]
    if np.array_equal(part, common):
        return len(longest)
    return int(np.argmax(part != common))


def _common_shift(
    streams: Mapping[int, OpStream], split: _Split, one: int, others: Sequence[int], *, complete: bool
) -> int | None:
    """How many operations the other ranks made more (or fewer, negative), if that explains everything that follows."""
    found: set[int | None] = set()
    for other in others:
        difference = num_collectives(streams[other]) - num_collectives(streams[one])
        found.add(_shift(split.following[one], split.following[other], difference, complete=complete))
    return next(iter(found)) if len(found) == 1 else None


def _shift(usual: Ids, other: Ids, difference: int, *, complete: bool) -> int | None:
    """The smallest one after which all agree again; of several, the one that `difference` of the totals bears out.

    In a loop of two operations one left out looks like one too many.
    """
    candidates = [
        sign * step
        for step in range(1, MAX_SHIFT + 1)
        for sign in (1, -1)
        if (_agree(other[step:], usual) if sign > 0 else _agree(usual[step:], other))
    ]
    if not candidates:
        return None
    num = min(len(usual), len(other))
    if num > 1 and np.array_equal(usual[1:num], other[1:num]):
        # One operation with other arguments would explain it as well: only whole logs can tell.
        return difference if complete and difference in candidates else None
    if -candidates[0] in candidates:
        return difference if difference in candidates else None
    return candidates[0]


def _agree(a: Ids, b: Ids) -> bool:
    num = min(len(a), len(b))
    return num >= MIN_AGREEMENT and bool(np.array_equal(a[:num], b[:num]))


def _kind(usual: OpShape, other: OpShape) -> str:
    if usual.name != other.name:
        return "name"
    if usual.count != other.count:
        return "size"
    if usual.dtype != other.dtype:
        return "dtype"
    return "root" if usual.root != other.root else "redop"


def _num_different(one: OpStream, other: OpStream, table: Table, index: int) -> int:
    """At how many places from `index` on two ranks differ, as far as both have operations."""
    a, b = Cursor(one, table), Cursor(other, table)
    base = found = 0
    while True:
        x, y = a.take(CHUNK), b.take(CHUNK)
        num = min(len(x), len(y))
        different = x[:num] != y[:num]
        found += int(np.count_nonzero(different[max(0, index - base) :]))
        if num < CHUNK:
            return found
        base += CHUNK


def _iteration(streams: Mapping[int, OpStream], other: int, index: int, place: int) -> int | None:
    """From the odd rank's markers, else from any rank's."""
    if streams[other].marks:
        return iteration_of(streams[other].marks, place)
    for stream in streams.values():
        if stream.marks:
            return iteration_of(stream.marks, place_of(stream, index))
    return None
