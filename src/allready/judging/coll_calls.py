"""Calls of COLL lines compared: the first operation of a communicator at which its ranks did not do the same."""

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec.structs import replace

from allready.evidence.operation_names import ANY
from allready.evidence.operations.codes import (
    POINT_TO_POINT,
    iteration_of,
    num_collectives,
    operation,
    origin_at,
    place_of,
    raw_codes,
)
from allready.evidence.reading import OpShape, OpStream
from allready.judging.group_calls import GroupCalls
from allready.judging.sequence import Codes
from allready.model import Mismatch, Recorder

MIN_AGREEMENT = 2
"""Operations that must agree again before ranks are called shifted against each other."""
_P2P = -1


class StreamCalls:
    """A stream's collectives as `sequence.Calls`, numbered from 1; what cannot be read any more is ANY.

    Only one portion is in memory; who asks for what stands before it makes the stream be read again.
    """

    begin = 1

    def __init__(self, stream: OpStream, codes: Codes) -> None:
        self.end = num_collectives(stream) + 1
        self._stream, self._codes = stream, codes
        self._open()

    def _open(self) -> None:
        self._at, self._held, self._rest = 1, np.array([], dtype=np.int64), self._collectives()

    def codes(self, begin: int, end: int) -> Codes:
        """The codes of a range."""
        if begin < self._at:
            self._open()
        while self._at + len(self._held) <= begin and self._advance():
            pass
        if self._at == begin and len(self._held) == end - begin:
            return self._held
        found = np.full(end - begin, ANY, dtype=np.int64)
        while True:
            low, high = max(begin, self._at), min(end, self._at + len(self._held))
            if low < high:
                found[low - begin : high - begin] = self._held[low - self._at : high - self._at]
            if high == end or not self._advance():
                return found

    def _advance(self) -> bool:
        following = next(self._rest, None)
        if following is not None:
            self._at, self._held = self._at + len(self._held), following
        return following is not None

    def _collectives(self) -> Iterator[Codes]:
        has_p2p = _P2P in self._codes
        for portion in raw_codes(self._stream):
            codes = self._codes[portion[portion < len(self._codes)]]
            yield codes[codes != _P2P] if has_p2p else codes


def _numbered(streams: Mapping[int, OpStream]) -> tuple[list[OpShape], dict[int, StreamCalls]]:
    """All different collectives in the order of their codes, from 1 on, and each stream's.

    Where a stream had too many different operations to keep their arguments, all are kept apart by name only.
    """
    by_name = any(s.count < 0 for stream in streams.values() for s in stream.shapes)
    numbers: dict[OpShape, int] = {}
    calls = {}
    for rank, stream in sorted(streams.items()):
        shapes = [OpShape(name=s.name, count=-1, dtype="", redop="", root=-1) if by_name else s for s in stream.shapes]
        codes = [_P2P if s.name in POINT_TO_POINT else numbers.setdefault(s, len(numbers) + 1) for s in shapes]
        calls[rank] = StreamCalls(stream, np.array(codes, dtype=np.int64))
    return list(numbers), calls


def first_mismatch(
    streams: Mapping[int, OpStream], *, group: str, size: int = 0, complete: bool = False
) -> Mismatch | None:
    """Compare all ranks in lockstep.

    A rank that has fewer operations is `missing` from there on, which is no mismatch.

    Args:
        size: how many ranks it has, also those that left no log.
        complete: every rank's operations are there to the last one.
    """
    if len(streams) < 2:
        return None
    shapes, calls = _numbered(streams)
    of = GroupCalls(
        group=group,
        source=Recorder.COLL_LOG,
        calls=calls,
        operation=lambda rank, found: operation(shapes[found.codes[rank] - 1], found.seq),
        origin=lambda rank, seq: origin_at(streams[rank], place_of(streams[rank], seq - 1)),
        num_members=size,
        min_agreement=MIN_AGREEMENT,
        is_whole=complete,
    )
    compared = of.compare()
    if compared is None:
        return None
    mismatch, found = compared
    _, other = found.examples()
    return replace(mismatch, iteration=_iteration(streams, other, found.seq - 1))


def _iteration(streams: Mapping[int, OpStream], other: int, index: int) -> int | None:
    """From the odd rank's markers, else from any rank's."""
    marked = next((s for s in (streams[other], *streams.values()) if s.marks), None)
    return iteration_of(marked.marks, place_of(marked, index)) if marked is not None else None
