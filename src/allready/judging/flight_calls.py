"""Calls of flight-recorder dumps compared: the first operation of a group at which its members did not do the same."""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from allready.evidence.flight.groups import Group
from allready.evidence.flight.names import version_of
from allready.evidence.flight.tracks import Track, is_own_line, operation_at
from allready.evidence.operation_names import ANY
from allready.judging.flight_splits import other_splits
from allready.judging.group_calls import GroupCalls, common_shift, tails
from allready.judging.sequence import Codes, KnownCalls, first_difference, loop_of
from allready.model import CallSite, GroupProgress, Mismatch, Recorder
from allready.model.run_evidence import LoopCount

MIN_SITES = 3
"""Call sites that must agree again after a shift: other call sites alone are no fault."""
MAX_COUNTED = 4
"""Ranks whose iterations are counted, of those that came least far and of those that came furthest."""
SIZES_SINCE = (2, 4)
"""Format in which all_to_all's sizes are those of the call."""


def mismatches_of(group: Group, tracks: Mapping[int, Track]) -> list[Mismatch]:
    """At most one: after the first difference, numbers do not mean the same any more."""
    # Before version 2.0 sends and receives take numbers too, which differ between ranks without a fault.
    if any(t.p2p and version_of(t.dump.version) < (2, 0) for t in tracks.values()):
        return []
    of = recorded(group, tracks)
    found = [m for m in (_other_call(of, tracks), other_splits(of, group, tracks)) if m is not None]
    if found:
        return [min(found, key=lambda m: m.seq)]
    shifted = _other_sites(of, tracks)
    return [shifted] if shifted is not None else _uneven_exchange(of, group, tracks)


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
    """The calls of each member."""
    return {rank: KnownCalls(t.lo, _codes(t.codes)) for rank, t in tracks.items()}


def lines_of(tracks: Mapping[int, Track]) -> dict[int, KnownCalls]:
    """The same by the ways through the program that led to the calls; of members whose recorder writes them."""
    numbers: dict[tuple[CallSite, ...], int] = {}
    found = {}
    for rank, track in tracks.items():
        ring, stacks = track.ring, track.dump.stacks
        if len(ring.site) and len(track.codes):
            code_of = [numbers.setdefault(s, len(numbers) + 1) if at else ANY for at, s in enumerate(stacks)]
            found[rank] = KnownCalls(track.lo, _codes([code_of[ring.site[i]] if i >= 0 else ANY for i in track.first]))
    return found


def _roots_of(tracks: Mapping[int, Track]) -> dict[int, KnownCalls]:
    """The same by one more than the root; of members that noted any."""
    found = {}
    for rank, track in tracks.items():
        root_of = [s.root + 1 if s.root is not None else ANY for s in track.dump.shapes]
        if any(root_of):
            codes = _codes([root_of[track.ring.shape[i]] if i >= 0 else ANY for i in track.first])
            found[rank] = KnownCalls(track.lo, codes)
    return found


def recorded(group: Group, tracks: Mapping[int, Track]) -> GroupCalls:
    """A group's calls as its members' dumps have them."""
    return GroupCalls(
        group=group.title,
        base_name=group.name,
        label=group.label,
        source=Recorder.FLIGHT,
        calls=calls_of(tracks),
        roots=_roots_of(tracks),
        operation=lambda rank, found: operation_at(group, tracks[rank], found.seq),
        origin=lambda rank, _: tracks[rank].dump.origin if rank in tracks else None,
        members=group.dumps,
        num_members=group.size,
        cut=[rank for rank, track in tracks.items() if track.dump.is_cut],
    )


def _codes(column: Sequence[int]) -> Codes:
    return np.array(column, dtype=np.int64)


def _other_call(of: GroupCalls, tracks: Mapping[int, Track]) -> Mismatch | None:
    """With the iteration, and whether it is the same call with other arguments: where type or root alone differ, at a
    line at which those that differ from it never call."""
    compared = of.compare()
    if compared is None:
        return None
    mismatch, found = compared
    one, other = found.examples()
    unlike = [track for rank, track in tracks.items() if found.codes.get(rank) != found.codes[other]]
    is_own = mismatch.kind in {"dtype", "root"} and not found.late and is_own_line(tracks[other], found.seq, unlike)
    count = iteration_of(tracks[one], found.seq)
    number = count.number if count is not None and count.is_exact else None
    return replace(mismatch, iteration=number, is_same_call=mismatch.is_same_call or is_own)


def _other_sites(of: GroupCalls, tracks: Mapping[int, Track]) -> Mismatch | None:
    """Equal operations, but from other lines of the program, shifted: an operation more that happened to fit.

    Only reported when the call sites agree again after leaving some out; ranks may have call sites of their own.
    """
    if len({t.hi for t in tracks.values()}) < 2:
        return None
    lines = lines_of(tracks)
    found = first_difference(lines, of.members, num_members=of.num_members)
    if found is None or not found.odd:
        return None
    shift = common_shift(lines, tails(lines, found), MIN_SITES)
    one, other = found.examples()
    if shift != tracks[other].hi - tracks[one].hi:
        return None
    return of.mismatch("name", found.seq, of.operations(found), odd=found.odd, shift=shift)


def _uneven_exchange(of: GroupCalls, group: Group, tracks: Mapping[int, Track]) -> list[Mismatch]:
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
        return [of.mismatch("size", seq, {r: o for r, o in operations.items() if o is not None})]
    return []
