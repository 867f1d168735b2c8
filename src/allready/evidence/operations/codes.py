"""Reading the compressed operations of a stream again, a portion at a time."""

import zlib
from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from allready.evidence.flight.names import element_bytes
from allready.evidence.reading import OpShape, OpStream
from allready.model import Operation, Origin

CHUNK = 4_096
POINT_TO_POINT = {"send", "recv"}


def raw_codes(stream: OpStream) -> Iterator[npt.NDArray[np.uint16]]:
    """All codes in order, never more than `CHUNK` at once, whatever a block holds."""
    for block in stream.blocks:
        inflate = zlib.decompressobj()
        rest, left = block, b""
        while rest:
            try:
                part = left + inflate.decompress(rest, 2 * CHUNK)
            except zlib.error:
                return
            rest = inflate.unconsumed_tail
            whole = len(part) // 2 * 2
            left = part[whole:]
            if whole:
                yield np.frombuffer(part[:whole], "<u2")
            elif not rest or inflate.eof:
                break


def num_collectives(stream: OpStream) -> int:
    """Operations that all ranks of the communicator have to make together."""
    return sum(n for s, n in zip(stream.shapes, stream.counts, strict=False) if s.name not in POINT_TO_POINT)


def place_of(stream: OpStream, index: int) -> int:
    """How many operations of any kind stand before the collective number `index` (from 0)."""
    known = np.array([s.name not in POINT_TO_POINT for s in stream.shapes], dtype=bool)
    if known.all():
        return index
    is_collective = np.append(known, False)  # the last one: of every code that stands for nothing
    place = seen = 0
    for codes in raw_codes(stream):
        good = np.flatnonzero(is_collective[np.minimum(codes, len(known))])
        if seen + len(good) > index:
            return place + int(good[index - seen])
        seen += len(good)
        place += len(codes)
    return place


def origin_at(stream: OpStream, place: int) -> Origin:
    """Where the operation with so many before it, of any kind, is logged; lines are known of the first and last one."""
    known = {0: stream.first_line, stream.num_operations - 1: stream.last_line}
    return replace(stream.origin, line=known.get(place))


def counts_by_name(stream: OpStream) -> dict[str, int]:
    """Operation name -> how many."""
    counts: dict[str, int] = {}
    for shape, count in zip(stream.shapes, stream.counts, strict=False):
        if count:
            counts[shape.name] = counts.get(shape.name, 0) + count
    return counts


def last_shape(stream: OpStream) -> OpShape | None:
    """The operation that was logged last."""
    last = None
    if stream.blocks:
        for codes in raw_codes(OpStream(origin=stream.origin, comm=stream.comm, blocks=stream.blocks[-1:])):
            last = int(codes[-1])
    return stream.shapes[last] if last is not None and last < len(stream.shapes) else None


def operation(shape: OpShape, seq: int, time_s: float | None = None) -> Operation:
    """As the model has it."""
    known = shape.count >= 0
    width = element_bytes(shape.dtype)
    return Operation(
        seq=seq,
        name=shape.name,
        num_elements=shape.count if known else None,
        dtype=shape.dtype or None,
        root=shape.root if known else None,
        redop=(shape.redop or None) if shape.name in {"all_reduce", "reduce", "reduce_scatter"} else None,
        size_bytes=shape.count * width if known and width else None,
        created_s=time_s,
        is_p2p=shape.name in POINT_TO_POINT,
    )


def iteration_of(marks: Mapping[int, int], place: int) -> int | None:
    """The iteration whose marker came last before the operation at `place`.

    Markers may be thinned out; between two that are further apart it is known only if the operations divide evenly.
    """
    before = [(n, i) for i, n in marks.items() if n <= place]
    after = [(n, i) for i, n in marks.items() if n > place]
    if not before:
        return None
    start, first = max(before)
    if not after:
        return first if min((b - a for a, b in pairwise(sorted(marks))), default=1) == 1 else None
    end, last = min(after)
    if last - first == 1:
        return first
    each, rest = divmod(end - start, last - first) if last > first else (0, 1)
    return first + (place - start) // each if not rest and each else None
