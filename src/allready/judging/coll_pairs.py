"""Sends and receives: matched by pair of ranks, not by position."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from allready.evidence.operations.codes import operation, raw_codes
from allready.evidence.reading import OpShape, OpStream
from allready.model import Misfit, Mismatch, Recorder

MAX_PAIRS = 64
"""Pairs that are followed operation by operation; of more, those with the largest difference."""


class _Pair(Struct, frozen=True):
    src: int
    dst: int
    sent: int
    received: int


def pair_mismatches(streams: Mapping[int, OpStream], members: Mapping[int, int], *, group: str) -> list[Mismatch]:
    """Sends that meet a receive of another size or type, and those that meet none.

    `missing` of an unmatched one is the rank that has not posted its half: it came not so far, or its log ends.

    Args:
        members: rank in the communicator (as `root` of a send has it) -> rank.
    """
    different = sorted(_different(streams, members), key=lambda p: (-abs(p.sent - p.received), p.src, p.dst))
    found: list[Mismatch] = []
    sizes: list[tuple[Misfit, Mismatch]] = []
    for pair in different[:MAX_PAIRS]:
        mismatch = _mismatch(streams, members, pair, group)
        if mismatch is None:
            continue
        if isinstance(mismatch, tuple):
            sizes.append(mismatch)
        else:
            found.append(mismatch)
    if sizes and _is_exchange(streams, members):
        return [_of_splits(sizes), *found]
    return [*(one for _, one in sizes), *found]


def _is_exchange(streams: Mapping[int, OpStream], members: Mapping[int, int]) -> bool:
    """Whether these are the parts of all_to_all: only there ranks send to themselves."""
    return any(
        shape.name == "send" and members.get(shape.root) == rank
        for rank, stream in streams.items()
        for shape in stream.shapes
    )


def _of_splits(sizes: Sequence[tuple[Misfit, Mismatch]]) -> Mismatch:
    """One mismatch of all pairs that do not fit; first those of two ranks."""
    ordered = sorted(sizes, key=lambda one: one[0].sender == one[0].receiver)
    by_rank = {
        rank: replace(op, name="all_to_all", root=None, is_p2p=False)
        for _, one in reversed(ordered)
        for rank, op in one.by_rank.items()
    }
    return replace(
        ordered[0][1], kind="splits", by_rank=dict(sorted(by_rank.items())), misfits=tuple(m for m, _ in ordered)
    )


def _different(streams: Mapping[int, OpStream], members: Mapping[int, int]) -> Iterator[_Pair]:
    """Pairs whose totals by size and type do not agree; both ranks' logs are there."""
    sent: dict[tuple[int, int], dict[tuple[int, str], int]] = {}
    received: dict[tuple[int, int], dict[tuple[int, str], int]] = {}
    for rank, stream in streams.items():
        for shape, count in zip(stream.shapes, stream.counts, strict=False):
            peer = members.get(shape.root)
            if peer is None or peer not in streams or not count:
                continue
            if shape.name == "send":
                totals = sent.setdefault((rank, peer), {})
            elif shape.name == "recv":
                totals = received.setdefault((peer, rank), {})
            else:
                continue
            key = (shape.count, shape.dtype)
            totals[key] = totals.get(key, 0) + count
    for src, dst in sorted({*sent, *received}):
        a, b = sent.get((src, dst), {}), received.get((src, dst), {})
        if a != b:
            yield _Pair(src, dst, sum(a.values()), sum(b.values()))


def _mismatch(
    streams: Mapping[int, OpStream], members: Mapping[int, int], pair: _Pair, group: str
) -> Mismatch | tuple[Misfit, Mismatch] | None:
    """The first send and receive of a pair that do not meet; with the sizes where those are what differs."""
    number_of = {rank: number for number, rank in members.items()}
    sends = _shapes(streams[pair.src], "send", number_of[pair.dst])
    receives = _shapes(streams[pair.dst], "recv", number_of[pair.src])
    seq = 0
    while True:
        seq += 1
        send, receive = next(sends, None), next(receives, None)
        if send is None and receive is None:
            return None
        if send is not None and receive is not None:
            if (send.count, send.dtype) == (receive.count, receive.dtype) or -1 in (send.count, receive.count):
                continue
            kind = "size" if send.count != receive.count else "dtype"
            by_rank = {pair.src: operation(send, seq), pair.dst: operation(receive, seq)}
            mismatch = Mismatch(
                group=group,
                source=Recorder.COLL_LOG,
                kind=kind,
                seq=seq,
                by_rank=by_rank,
                origins={rank: replace(streams[rank].origin, line=None) for rank in by_rank},
            )
            if kind == "dtype":
                return mismatch
            misfit = Misfit(sender=pair.src, receiver=pair.dst, num_sent=send.count, num_expected=receive.count)
            return misfit, mismatch
        there, shape, absent = (pair.src, send, pair.dst) if send is not None else (pair.dst, receive, pair.src)
        assert shape is not None
        return Mismatch(
            group=group,
            source=Recorder.COLL_LOG,
            kind="peer",
            seq=seq,
            by_rank={there: operation(shape, seq)},
            missing=(absent,),
            num_after=abs(pair.sent - pair.received),
            origins={there: replace(streams[there].origin, line=None)},
        )


def _shapes(stream: OpStream, name: str, peer: int) -> Iterator[OpShape]:
    wanted = {i: s for i, s in enumerate(stream.shapes) if s.name == name and s.root == peer}
    for codes in raw_codes(stream):
        for code in codes.tolist():
            if code in wanted:
                yield wanted[code]
