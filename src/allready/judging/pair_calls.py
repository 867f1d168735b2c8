"""Sends and receives compared: matched by pair of ranks, not by position."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from allready.evidence.flight.groups import Group
from allready.evidence.flight.pairs import Pair
from allready.evidence.flight.tracks import Track
from allready.evidence.flight.tracks import operation as recorded_operation
from allready.evidence.operations.codes import operation, raw_codes
from allready.evidence.reading import OpShape, OpStream
from allready.judging.mismatch import UNMET
from allready.model import Misfit, Mismatch, Recorder

Half = TypeVar("Half")

MAX_PAIRS = 64
"""Pairs that are followed operation by operation; of more, those with the largest difference."""


class _Pair(Struct, frozen=True):
    src: int
    dst: int
    sent: int
    received: int


class PairMisfit(Struct, Generic[Half], frozen=True):
    """The first send and receive of a pair that do not meet: their number, and in what; one of them may be missing."""

    seq: int
    kind: str
    send: Half | None
    receive: Half | None


def first_misfit(
    sends: Iterable[Half], receives: Iterable[Half], given: Callable[[Half], tuple[int, tuple[str, ...]]]
) -> PairMisfit[Half] | None:
    """Compare halves in their order.

    Args:
        given: the elements of a half (-1 where they are not known) and their types.
    """
    for seq, (send, receive) in enumerate(zip_longest(sends, receives), 1):
        if send is None or receive is None:
            return PairMisfit(seq, UNMET, send, receive)
        sent, expected = given(send), given(receive)
        if sent == expected:
            continue
        if min(sent[0], expected[0]) >= 0 and sent[0] != expected[0]:
            return PairMisfit(seq, "size", send, receive)
        if sent[1] and expected[1] and sent[1] != expected[1]:
            return PairMisfit(seq, "dtype", send, receive)
    return None


def recorded_misfits(group: Group, pairs: Iterable[Pair]) -> Iterator[Mismatch]:
    """Sends in dumps whose receive expects another size or type; who did not come, positions tell."""
    for pair in pairs:
        found = first_misfit(*pair.halves(), _recorded)
        if found is None or found.send is None or found.receive is None:
            continue
        made = {pair.src: found.send, pair.dst: found.receive}
        yield Mismatch(
            group=f"{group.title} send {pair.src}->{pair.dst}",
            base_name=group.name,
            pair=(pair.src, pair.dst),
            source=Recorder.FLIGHT,
            kind=found.kind,
            seq=found.seq,
            by_rank={r: replace(recorded_operation(group, *half), seq=found.seq) for r, half in made.items()},
            label=f"{group.label or group.name} send {pair.src}->{pair.dst}",
            origins={r: track.dump.origin for r, (track, _) in made.items()},
        )


def _recorded(half: tuple[Track, int]) -> tuple[int, tuple[str, ...]]:
    """The recorder writes the tensor as input, output or both."""
    track, entry = half
    num_in, num_out = track.numels(entry)
    shape = track.dump.shapes[track.ring.shape[entry]]
    return (num_out, shape.out_dtypes) if shape.name == "recv" and not shape.in_sizes else (num_in, shape.in_dtypes)


def pair_mismatches(streams: Mapping[int, OpStream], members: Mapping[int, int], *, group: str) -> list[Mismatch]:
    """Sends in COLL lines that meet a receive of another size or type, and those that meet none.

    `missing` of an unmatched one is the rank that has not posted its half: it came not so far, or its log ends.

    Args:
        members: rank in the communicator (as `root` of a send has it) -> rank.
    """
    different = sorted(_different(streams, members), key=lambda p: (-abs(p.sent - p.received), p.src, p.dst))
    found = [m for pair in different[:MAX_PAIRS] if (m := _mismatch(streams, members, pair, group)) is not None]
    sizes = sorted((m for m in found if m.misfits), key=lambda m: m.misfits[0].sender == m.misfits[0].receiver)
    rest = [m for m in found if not m.misfits]
    if sizes and _is_exchange(streams, members):
        return [_of_splits(sizes), *rest]
    return [*(replace(m, misfits=()) for m in found if m.misfits), *rest]


def _is_exchange(streams: Mapping[int, OpStream], members: Mapping[int, int]) -> bool:
    """Whether these are the parts of all_to_all: only there ranks send to themselves."""
    return any(
        shape.name == "send" and members.get(shape.root) == rank
        for rank, stream in streams.items()
        for shape in stream.shapes
    )


def _of_splits(sizes: Sequence[Mismatch]) -> Mismatch:
    """One mismatch of all pairs that do not fit, the first ones of which are of two ranks."""
    by_rank = {
        rank: replace(op, name="all_to_all", root=None, is_p2p=False)
        for one in reversed(sizes)
        for rank, op in one.by_rank.items()
    }
    misfits = tuple(misfit for one in sizes for misfit in one.misfits)
    return replace(sizes[0], kind="splits", by_rank=dict(sorted(by_rank.items())), misfits=misfits)


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


def _mismatch(streams: Mapping[int, OpStream], members: Mapping[int, int], pair: _Pair, group: str) -> Mismatch | None:
    """The first send and receive of a pair that do not meet."""
    number_of = {rank: number for number, rank in members.items()}
    sends = _shapes(streams[pair.src], "send", number_of[pair.dst])
    receives = _shapes(streams[pair.dst], "recv", number_of[pair.src])
    found = first_misfit(sends, receives, lambda shape: (shape.count, (shape.dtype,) if shape.dtype else ()))
    if found is None:
        return None
    send, receive = found.send, found.receive
    halves = {rank: shape for rank, shape in ((pair.src, send), (pair.dst, receive)) if shape is not None}
    misfits: tuple[Misfit, ...] = ()
    if send is not None and receive is not None and found.kind == "size":
        misfits = (Misfit(sender=pair.src, receiver=pair.dst, num_sent=send.count, num_expected=receive.count),)
    return Mismatch(
        group=group,
        source=Recorder.COLL_LOG,
        kind=found.kind,
        seq=found.seq,
        by_rank={rank: operation(shape, found.seq) for rank, shape in halves.items()},
        missing=(pair.src,) if send is None else (pair.dst,) if receive is None else (),
        origins={rank: replace(streams[rank].origin, line=None) for rank in halves},
        misfits=misfits,
    )


def _shapes(stream: OpStream, name: str, peer: int) -> Iterator[OpShape]:
    wanted = {i: s for i, s in enumerate(stream.shapes) if s.name == name and s.root == peer}
    for codes in raw_codes(stream):
        for code in codes.tolist():
            if code in wanted:
                yield wanted[code]
