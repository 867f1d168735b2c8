"""Two ranks of which one made more calls than the other: which call it was, and whose own order it broke.

Of two neither is a majority, and where all calls are of one kind and size their numbers show only that one rank came
further.  What else the recorder writes tells more: the lines of the program that led to each call, and when it was
made.  Who made a call that the other did not, and whether that call belongs to the loop of both, comes from comparing
each rank's calls with those that it had made until then.  When it was made is a hint and accuses no rank.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from allready.evidence.flight.groups import Group
from allready.evidence.flight.tracks import Track, operation_at
from allready.judging.flight_calls import lines_of, recorded
from allready.judging.sequence import Codes, FirstDifference, KnownCalls, agree
from allready.model import PairSurplus

MAX_SURPLUS = 4
"""Calls that one of two may be ahead: it soon waits for the other, and the other for it."""
MIN_STEPS = 12
"""Calls of one rank that must be made at their usual pace for one that is not to stand out."""
SOON_SHARE = 0.1
MIN_STEP_S = 0.005
"""A call so soon after the last one had no step before it: a tenth of what its rank needed for the shortest other one,
which itself must be longer than what a scheduler takes."""


def pair_surplus(
    groups: Sequence[tuple[Group, Mapping[int, Track]]], node_of_rank: Mapping[int, int]
) -> PairSurplus | None:
    """The call that one member of a group of two made and the other did not, in the first such group."""
    for group, tracks in groups:
        if len(tracks) != 2 or len(group.members or tracks) != 2:
            continue
        behind, ahead = sorted(tracks.values(), key=lambda t: t.hi)
        if not 0 < ahead.hi - behind.hi <= MAX_SURPLUS or not len(behind.codes):
            continue
        lines = lines_of(tracks)
        if len(lines) < 2:
            continue
        differ = replace(recorded(group, tracks), calls=lines).difference()
        if differ is not None:
            found = _by_line(group, ahead, behind, lines, differ)
        else:  # without their lines, calls that come soon may be of a line that the other one missed
            found = _by_pace(group, ahead, behind, node_of_rank) if ahead.hi == behind.hi + 1 else None
        if found is not None:
            return found
    return None


def _by_line(
    group: Group, ahead: Track, behind: Track, calls: Mapping[int, KnownCalls], found: FirstDifference
) -> PairSurplus | None:
    """Calls from other lines until some are left out, after which both agree again."""
    own, others = (calls[r].codes(found.seq, calls[r].end) for r in (ahead.rank, behind.rank))
    if not agree(own[ahead.hi - behind.hi :], others, 1):
        return None
    return PairSurplus(
        group=group.title,
        ahead=ahead.rank,
        behind=behind.rank,
        seq=found.seq,
        operation=operation_at(group, ahead, found.seq),
        odd=found.late if len(found.late) == 1 else (),
    )


def _by_pace(group: Group, ahead: Track, behind: Track, node_of_rank: Mapping[int, int]) -> PairSurplus | None:
    """A call of the same line that came at once after the one before, where each other one came after a step.

    It may have been made twice; a step without work, as of a batch that is skipped, looks the same: no rank is odd.
    """
    lo, hi = max(ahead.lo, behind.lo), behind.hi
    own, others = _made_ns(ahead, lo, hi), _made_ns(behind, lo, hi)
    if min(len(own), len(others)) < MIN_STEPS:
        return None
    # Both are in a call until the later one has come; on clocks of two nodes only its own calls are compared.
    is_one_clock = node_of_rank.get(ahead.rank, -1) == node_of_rank.get(behind.rank, -2)
    until = np.maximum(own, others)[:-1]
    steps_s, others_s = ((made[1:] - (until if is_one_clock else made[:-1])) / 1e9 for made in (own, others))
    soon, usual_s = int(steps_s.argmin()), float(np.sort(steps_s)[1])
    is_soon = usual_s >= MIN_STEP_S and steps_s[soon] <= SOON_SHARE * usual_s
    if not is_soon or others_s.min() <= SOON_SHARE * usual_s:
        return None
    seq = lo + 1 + soon
    return PairSurplus(
        group=group.title,
        ahead=ahead.rank,
        behind=behind.rank,
        seq=seq,
        operation=operation_at(group, ahead, seq),
        step_s=max(0.0, float(steps_s[soon])),
        usual_step_s=usual_s,
    )


def _made_ns(track: Track, lo: int, hi: int) -> Codes:
    """When it made the calls of this range; none where the times of some are not known."""
    created, entries = track.ring.created_ns, track.first[lo - track.lo : hi + 1 - track.lo]
    known = len(created) > 0 and all(entry >= 0 and created[entry] > 0 for entry in entries)
    return np.array([created[entry] for entry in entries] if known else [], dtype=np.int64)
