"""Calls of flight-recorder dumps compared: the first operation of a group at which its members did not do the same."""

from array import array
from collections.abc import Iterable, Mapping

import numpy as np
from msgspec.structs import replace

from allready.evidence.flight.groups import Group
from allready.evidence.flight.names import version_of
from allready.evidence.flight.tracks import ANY, Track, is_own_line, operation_at
from allready.judging.flight_splits import mismatch_of, other_splits
from allready.judging.majority import is_tie
from allready.judging.sequence import (
    Codes,
    Difference,
    KnownCalls,
    agree,
    codes_before,
    first_difference,
    loop_of,
    num_different,
    out_of_turn,
    shift_of,
)
from allready.model import CallSite, GroupProgress, Mismatch, Operation
from allready.model.run_evidence import LoopCount

MAX_SHIFT = 64
"""Operations that a rank may have made more or less than the others to be found out by the rest of the sequence."""
MIN_SITES = 3
"""Call sites that must agree again after a shift: other call sites alone are no fault."""
MAX_COUNTED = 4
"""Ranks whose iterations are counted, of those that came least far and of those that came furthest."""
MAX_RANKS = 64
"""Whose operations a mismatch lists: all that are odd, then others."""
SIZES_SINCE = (2, 4)
"""Format in which all_to_all's sizes are those of the call."""


def mismatches_of(group: Group, tracks: Mapping[int, Track]) -> list[Mismatch]:
    """At most one: after the first difference, numbers do not mean the same any more."""
    # Before version 2.0 sends and receives take numbers too, which differ between ranks without a fault.
    if any(t.p2p and version_of(t.dump.version) < (2, 0) for t in tracks.values()):
        return []
    calls = calls_of(tracks)
    found = [
        m for m in (_other_call(group, tracks, calls), other_root(group, tracks), other_splits(group, tracks)) if m
    ]
    if found:
        return [min(found, key=lambda m: m.seq)]
    shifted = _other_sites(group, tracks)
    return [shifted] if shifted is not None else _uneven_exchange(group, tracks)


def iteration_of(track: Track, seq: int) -> LoopCount | None:
    """The iteration to which a member's call belongs; None where its calls do not repeat.

    About right where the ring does not go back to the group's first call, or where others came before the loop: some of
    these may have been its first iterations, as with DDP, which orders its gradients anew after one.
    """
    before = _codes(track.codes)[: max(0, seq - track.lo)]
    loop = loop_of(before)
    if loop is None:
        return None
    is_whole = track.lo <= 1
    number = (len(before) - loop.begin if is_whole else seq - 1) // loop.period + 1
    return LoopCount(number, is_whole and loop.begin == 0)


def with_iterations(progress: GroupProgress, tracks: Mapping[int, Track]) -> GroupProgress:
    """In which iterations members are: the few that came least far, and some of the others."""
    reached = sorted((p.enqueued, rank) for rank, p in progress.positions.items() if rank in tracks)
    if not reached or reached[0][0] == reached[-1][0]:
        return progress
    shown = {rank for _, rank in (*reached[:MAX_COUNTED], *reached[-MAX_COUNTED:])}
    positions = {
        rank: replace(p, iteration=iteration_of(tracks[rank], p.enqueued)) if rank in shown else p
        for rank, p in progress.positions.items()
    }
    return replace(progress, positions=positions)


def calls_of(tracks: Mapping[int, Track]) -> dict[int, KnownCalls]:
    """The calls of each member that left any."""
    return {rank: KnownCalls(t.lo, _codes(t.codes)) for rank, t in tracks.items() if len(t.codes)}


def _codes(column: "array[int]") -> Codes:
    return np.array(column, dtype=np.int64)


def _other_call(group: Group, tracks: Mapping[int, Track], calls: Mapping[int, KnownCalls]) -> Mismatch | None:
    """The first number under which two members made different calls."""
    found = first_difference(calls, group.dumps, num_members=group.size)
    if found is None:
        return None
    late = out_of_turn(codes_before(calls, found.seq), found.codes)
    if late and is_tie(found.codes, {*group.dumps, *calls}, num_members=group.size):
        found = replace(found, usual=next(c for r, c in found.codes.items() if r not in late), odd=late)
    a, b = found.examples()
    usual, odd = (calls[r].codes(found.seq, calls[r].end) for r in (a, b))
    shift = shift_of(usual, odd, surplus=len(odd) - len(usual), most=MAX_SHIFT)
    operations = _operations(group, tracks, found)
    kind = _kind(operations.values(), operations[a], operations[b]) if {a, b} <= set(operations) else "name"
    count = iteration_of(tracks[a], found.seq)
    agree_again = shift is None and agree(usual[1:], odd[1:], 1)
    unlike = [track for rank, track in tracks.items() if found.codes.get(rank) != found.codes[b]]
    if found.odd not in {(), late}:
        late = ()  # most have left the loop
    return mismatch_of(
        group,
        tracks,
        kind=kind,
        seq=found.seq,
        by_rank=operations,
        missing=_missing(tracks, found.seq),
        iteration=count.number if count is not None and count.is_exact else None,
        num_after=num_different(usual, odd),
        odd=found.odd,
        shift=shift if found.odd or shift is None else abs(shift),
        out_of_turn=late,
        is_same_call=kind != "name"
        and not late
        and (agree_again or (kind == "dtype" and is_own_line(tracks[b], found.seq, unlike))),
    )


def other_root(group: Group, tracks: Mapping[int, Track]) -> Mismatch | None:
    """The first operation for which two members named different roots."""
    roots = {rank: KnownCalls(t.lo, _roots(t)) for rank, t in tracks.items() if any(_root_of(t).values())}
    found = first_difference(roots, group.dumps, num_members=group.size)
    if found is None:
        return None
    operations = _operations(group, tracks, found)
    if len({o.name for o in operations.values()}) != 1:
        return None  # another call: that is the mismatch
    _, b = found.examples()
    unlike = [track for rank, track in tracks.items() if found.codes.get(rank) != found.codes[b]]
    return mismatch_of(
        group,
        tracks,
        kind="root",
        seq=found.seq,
        by_rank=operations,
        missing=_missing(tracks, found.seq),
        odd=found.odd,
        is_same_call=is_own_line(tracks[b], found.seq, unlike),
    )


def _root_of(track: Track) -> dict[int, int]:
    """Shape -> one more than its root; 0 where it names none."""
    return {code: s.root + 1 if s.root is not None else ANY for code, s in enumerate(track.dump.shapes)}


def _roots(track: Track) -> Codes:
    root_of = _root_of(track)
    return np.array([root_of[track.ring.shape[i]] if i >= 0 else ANY for i in track.first], dtype=np.int64)


def _operations(group: Group, tracks: Mapping[int, Track], found: Difference) -> dict[int, Operation]:
    """What members did where they differ: those that are odd, then others."""
    listed = [*found.odd[:MAX_RANKS], *(r for r in found.codes if r not in set(found.odd))][: MAX_RANKS + 2]
    return {r: o for r in sorted(listed) for o in (operation_at(group, tracks[r], found.seq),) if o is not None}


def _missing(tracks: Mapping[int, Track], seq: int) -> tuple[int, ...]:
    """Members whose dump ends before."""
    return tuple(r for r, t in tracks.items() if t.hi < seq and not t.dump.is_cut)


def _kind(operations: Iterable[Operation], a: Operation, b: Operation) -> str:
    if a.name != b.name or len({o.name for o in operations}) > 1:
        return "name"
    return "dtype" if a.dtype != b.dtype and a.num_elements == b.num_elements else "size"


def _other_sites(group: Group, tracks: Mapping[int, Track]) -> Mismatch | None:
    """Equal operations, but from other lines of the program, shifted: an operation more that happened to fit.

    Only reported when the call sites agree again after leaving some out; ranks may have call sites of their own.
    """
    if len({t.hi for t in tracks.values()}) < 2:
        return None
    numbers: dict[tuple[CallSite, ...], int] = {}
    sites: dict[int, KnownCalls] = {}
    for rank, track in tracks.items():
        ring, dump = track.ring, track.dump
        if not len(ring.site) or not len(track.codes):
            continue
        code_of = [numbers.setdefault(s, len(numbers) + 1) if at else ANY for at, s in enumerate(dump.stacks)]
        codes = np.array([code_of[ring.site[i]] if i >= 0 else ANY for i in track.first], dtype=np.int64)
        sites[rank] = KnownCalls(track.lo, codes)
    found = first_difference(sites, group.dumps, num_members=group.size)
    if found is None or not found.odd:
        return None
    a, b = found.examples()
    usual, odd = (sites[r].codes(found.seq, sites[r].end) for r in (a, b))
    shift = shift_of(usual, odd, surplus=len(odd) - len(usual), most=MAX_SHIFT, least=MIN_SITES)
    if shift is None or tracks[b].hi - tracks[a].hi != shift:
        return None
    return mismatch_of(
        group,
        tracks,
        kind="name",
        seq=found.seq,
        by_rank=_operations(group, tracks, found),
        num_after=num_different(usual, odd),
        odd=found.odd,
        shift=shift,
    )


def _uneven_exchange(group: Group, tracks: Mapping[int, Track]) -> list[Mismatch]:
    """An all_to_all of which more is sent than received: uneven parts are legal, a sum that does not fit is not."""
    if not group.members or set(tracks) != set(group.members) or not all(len(t.codes) for t in tracks.values()):
        return []
    if any(version_of(t.dump.version) < SIZES_SINCE for t in tracks.values()):
        return []
    if not any(t.dump.shapes[c].name == "all_to_all" for t in tracks.values() for c in set(t.ring.shape)):
        return []
    for seq in range(max(t.lo for t in tracks.values()), min(t.hi for t in tracks.values()) + 1):
        entries = {r: t.first[seq - t.lo] for r, t in tracks.items()}
        if min(entries.values()) < 0:
            continue
        if any(t.dump.shapes[t.ring.shape[entries[r]]].name != "all_to_all" for r, t in tracks.items()):
            continue
        counts = [t.numels(entries[r]) for r, t in tracks.items()]
        if min(min(c) for c in counts) < 0 or sum(c[0] for c in counts) == sum(c[1] for c in counts):
            continue
        operations = {r: operation_at(group, t, seq) for r, t in tracks.items()}
        return [
            mismatch_of(
                group,
                tracks,
                kind="size",
                seq=seq,
                by_rank={r: o for r, o in list(operations.items())[:MAX_RANKS] if o is not None},
            )
        ]
    return []
