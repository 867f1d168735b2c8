"""Splits of all_to_all in flight-recorder dumps: what one member sends another, and that one does not expect."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from allready.evidence.flight.given import Splits
from allready.evidence.flight.groups import Group
from allready.evidence.flight.tracks import Track, operation_at
from allready.judging.group_calls import GroupCalls
from allready.model import Misfit, Mismatch

MAX_RANKS = 64
"""Whose operations a mismatch lists."""
MAX_MISFITS = 1_000
MAX_COMPARED = 10_000_000
"""Pairs of ranks in all different all_to_alls of a group together."""


def other_splits(of: GroupCalls, group: Group, tracks: Mapping[int, Track]) -> Mismatch | None:
    """The first all_to_all in which a member sends another what that one does not expect.

    Who is odd is known where one member has a part in all that does not fit; in a single pair either may be wrong.
    """
    fitting: set[tuple[tuple[int, int], ...]] = set()
    left = MAX_COMPARED
    for seq, known in sorted(splits_of(group, tracks).items()):
        same = tuple((rank, id(splits)) for rank, splits in known.items())  # a loop repeats itself
        left -= 0 if same in fitting else len(known) ** 2
        if same in fitting or left < 0:
            continue
        fitting.add(same)
        misfits = misfits_of(group, known)
        if misfits:
            return splits_mismatch(of, group, tracks, seq, known, misfits)
    return None


def splits_of(group: Group, tracks: Mapping[int, Track]) -> dict[int, dict[int, Splits]]:
    """Number of an all_to_all -> rank -> its splits, where they are known."""
    found: dict[int, dict[int, Splits]] = {}
    for rank in group.members:
        for seq, splits in _splits(tracks[rank]) if rank in tracks else ():
            if len(splits[0]) == len(group.members):
                found.setdefault(seq, {})[rank] = splits
    return found


def misfits_of(group: Group, known: Mapping[int, Splits]) -> list[Misfit]:
    """What does not fit between any two members whose splits are known."""
    ranks = list(known)
    if not ranks:
        return []
    places = {rank: place for place, rank in enumerate(group.members)}
    own = np.array([places[r] for r in ranks])
    sent = np.array([known[r][0] for r in ranks], dtype=np.int64)[:, own]
    expected = np.array([known[r][1] for r in ranks], dtype=np.int64)[:, own].T
    found = np.argwhere(sent != expected)
    # Of too many some from all over: the first ones alone would all be of one rank.
    return [
        Misfit(sender=ranks[x], receiver=ranks[y], num_sent=int(sent[x, y]), num_expected=int(expected[x, y]))
        for x, y in found[:: len(found) // MAX_MISFITS + 1].tolist()
    ]


def splits_mismatch(
    of: GroupCalls,
    group: Group,
    tracks: Mapping[int, Track],
    seq: int,
    known: Mapping[int, Splits],
    misfits: Sequence[Misfit],
) -> Mismatch:
    """As findings have it.  `missing`: members whose splits are not known."""
    common = set.intersection(*({m.sender, m.receiver} for m in misfits))
    listed = sorted({r for m in misfits[:MAX_RANKS] for r in (m.sender, m.receiver)})
    made = {r: o for r in listed if r in tracks for o in (operation_at(group, tracks[r], seq),) if o is not None}
    return of.mismatch(
        "splits",
        seq,
        made,
        missing=tuple(r for r in group.members if r not in known),
        odd=tuple(common) if len(common) == 1 else (),
        misfits=tuple(misfits),
    )


def _splits(track: Track) -> Iterator[tuple[int, Splits]]:
    known = {code: s.splits for code, s in enumerate(track.dump.shapes) if s.splits is not None}
    for at, entry in enumerate(track.first) if known else ():
        splits = known.get(track.ring.shape[entry]) if entry >= 0 else None
        if splits is not None:
            yield track.lo + at, splits
