"""Each rank's calls over all of its groups, in the order in which it made them: who left the order of its loop.

Numbers of operations compare only inside a group.  A rank that leaves out a call of one group, or takes two groups in
another order, has made nothing wrong in any of them, and still breaks the loop that it had made until then.  So has
one that leaves out a send: Gloo records none, but counts them.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat

import numpy as np

from allready.evidence.flight.groups import Group
from allready.evidence.flight.tracks import ANY, Track
from allready.judging.sequence import Codes, loop_of

UNRECORDED = -1
"""A send or receive that Gloo has counted between two records."""
MAX_BETWEEN = 64
"""So many of them are told from one another."""

MAX_CALLS = 512
"""Of one rank, the last ones."""
MAX_SINCE = 4
"""Calls that a rank may have made since it left its order: few, since the others soon wait for it or it for them."""
MAX_RANKS = 1_024


def kept_turns(groups: Sequence[tuple[Group, Mapping[int, Track]]]) -> dict[int, bool]:
    """Rank -> whether its last calls kept to its loop; nothing of ranks without a loop, or where all calls are
    records of one group."""
    used = [(group, tracks) for group, tracks in groups if tracks]
    if len(used) < 2 and not any(_sends(track) for _, tracks in used for track in tracks.values()):
        return {}
    of_rank: dict[int, list[tuple[int, Track]]] = {}
    for number, (_, tracks) in enumerate(used):
        for rank, track in tracks.items():
            of_rank.setdefault(rank, []).append((number, track))
    kept = ((r, _keeps(_calls(tracks))) for r, tracks in list(of_rank.items())[:MAX_RANKS])
    return {rank: keeps for rank, keeps in kept if keeps is not None}


def _calls(tracks: Sequence[tuple[int, Track]]) -> Codes:
    """A number for each different call of one rank, in the order of their making; none where times are not known."""
    every = sorted(chain.from_iterable(_timed(number, track) for number, track in tracks))
    if not every or every[0][0] == 0:
        return np.array([], dtype=np.int64)
    numbers: dict[tuple[int, int], int] = {}
    return np.array([numbers.setdefault(call, len(numbers) + 1) for _, call in every[-MAX_CALLS:]], dtype=np.int64)


def _timed(number: int, track: Track) -> Iterator[tuple[int, tuple[int, int]]]:
    created = track.ring.created_ns
    for entry, code in zip(track.first[-MAX_CALLS:], track.codes[-MAX_CALLS:], strict=True):
        if entry < 0 or code == ANY:
            continue
        at = created[entry] if len(created) else 0
        yield from repeat((at, (number, UNRECORDED)), _between(track, entry))
        yield at, (number, code)


def _sends(track: Track) -> bool:
    """Whether it has operations that are counted and not recorded."""
    op = track.ring.op
    return len(op) > 0 and op[-1] - op[0] >= len(op)


def _between(track: Track, entry: int) -> int:
    """How many operations of the group are not recorded between this entry and the one before."""
    op = track.ring.op
    return min(max(0, op[entry] - op[entry - 1] - 1), MAX_BETWEEN) if 0 < entry < len(op) else 0


def _keeps(calls: Codes) -> bool | None:
    if loop_of(calls) is not None:
        return True
    for since in range(1, MAX_SINCE + 1):
        loop = loop_of(calls[:-since])
        if loop is not None:  # a call that the loop does not have may be missing in the others
            return False if calls[-since] in calls[:-since][-loop.period :] else None
    return None
