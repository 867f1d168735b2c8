"""Each rank's calls over all of its groups, in the order in which it made them: who left the order of its loop.

Numbers of operations compare only inside a group.  A rank that leaves out a call of one group, or takes two groups in
another order, has made nothing wrong in any of them, and still breaks the loop that it had made until then.  So has
one that leaves out a send: Gloo records none, but counts them.  Before a loop has gone round often enough to be known,
the calls of all ranks are compared instead, by their lines in the program or, where these are not recorded, by kind,
and how many sends and receives each rank made between two calls with how many it made there the time before.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import chain, pairwise, repeat

import numpy as np
from msgspec.structs import replace

from allready.evidence.flight.groups import Group
from allready.evidence.flight.tracks import Track
from allready.evidence.operation_names import ANY
from allready.evidence.operations.codes import raw_codes
from allready.evidence.reading import OpStream
from allready.judging.majority import is_minority
from allready.judging.sequence import Codes, codes_before, first_difference, loop_of, numbered

BEGINNING = -2
"""What is before the first call."""
UNRECORDED = -1
"""A send or receive that Gloo has counted between two records."""
MAX_BETWEEN = 64
"""So many of them are distinguished from one another."""

MAX_CALLS = 512
"""Of one rank, the last ones."""
MAX_SINCE = 4
"""Calls that a rank may have made since it left its order: few, since the others soon wait for it or it for them."""
MAX_RANKS = 1_024


def kept_turns(groups: Sequence[tuple[Group, Mapping[int, Track]]]) -> dict[int, bool]:
    """Rank -> whether its last calls kept to its loop; nothing of ranks without a loop.

    Where all calls are records of one group nothing of ranks that left it either: their group's mismatches show them.
    """
    used = [(group, tracks) for group, tracks in groups if tracks]
    if len(used) < 2 and not any(_sends(track) for _, tracks in used for track in tracks.values()):
        return {rank: True for _, tracks in used for rank, t in tracks.items() if _keeps(_calls([(0, t)]))}
    of_rank: dict[int, list[tuple[int, Track]]] = {}
    for number, (_, tracks) in enumerate(used):
        for rank, track in tracks.items():
            of_rank.setdefault(rank, []).append((number, track))
    some = dict(list(of_rank.items())[:MAX_RANKS])
    loops = ((r, _keeps(_calls(tracks))) for r, tracks in some.items())
    kept = {rank: keeps for rank, keeps in loops if keeps is not None}
    if False in kept.values() or len(some) < len(of_rank):
        return kept
    return kept | (_compared([group for group, _ in used], some) or _sent_as_before(some))


def kept_loops(streams: Mapping[int, Sequence[OpStream]]) -> dict[int, bool]:
    """The same from the calls that NCCL logged: ranks whose calls of their only communicator are a loop to the end."""
    return {rank: True for rank, of_rank in streams.items() if len(of_rank) == 1 and _keeps(_last_codes(of_rank[0]))}


def _last_codes(stream: OpStream) -> Codes:
    last = replace(stream, blocks=stream.blocks[-2:])  # the last one may hold a few only
    return np.concatenate([np.array([], np.int64), *raw_codes(last)])[-MAX_CALLS:]


def _sent_as_before(of_rank: Mapping[int, Sequence[tuple[int, Track]]]) -> dict[int, bool]:
    """Rank -> whether it made as many sends and receives before its last call as each time before; of the few that did
    not, and then of all others.

    Where that call was made but once, at the beginning, only one rank may be odd: what is sent besides, before a loop
    begins, two have a part in.
    """
    kept: dict[int, bool] = {}
    is_once = False
    for rank, tracks in of_rank.items():
        for _, track in tracks:
            *before, last = (_sends_between(track) if _sends(track) else []) or [((ANY, ANY), 0)]
            known = {num for key, num in before if key == last[0]}
            if not known and before and before[0][0] == (BEGINNING, last[0][1]) and before[0][1] != last[1]:
                kept[rank], is_once = False, True
            elif len(known) == 1:
                kept[rank] = kept.get(rank, True) and last[1] in known
    odd = [rank for rank, is_kept in kept.items() if not is_kept]
    if odd and is_minority(len(odd), len(of_rank)) and not (is_once and len(odd) > 1):
        return dict.fromkeys(of_rank, True) | dict.fromkeys(odd, False)
    return {rank: True for rank in kept if rank not in odd}


def _sends_between(track: Track) -> list[tuple[tuple[int, int], int]]:
    """((the call before, the call), how many sends and receives between them) of all calls; of the first one where the
    record goes back to it."""
    entries = [(entry, code) for entry, code in zip(track.first, track.codes, strict=True) if entry >= 0]
    found = [((a[1], b[1]), _between(track, b[0])) for a, b in pairwise(entries[-MAX_CALLS:])]
    if entries and entries[0][0] == 0 and track.dump.is_whole and len(entries) <= MAX_CALLS:
        found.insert(0, ((BEGINNING, entries[0][1]), min(max(0, track.ring.op[0] - 1), MAX_BETWEEN)))
    return found


def _compared(groups: Sequence[Group], of_rank: Mapping[int, Sequence[tuple[int, Track]]]) -> dict[int, bool]:
    """The same of ranks that have made the same calls from their first one on, until most made one that they all know
    and a few another one that they all know; {} where that is not the end of it."""
    for keys_of in (_lines, _kinds):
        calls = {rank: keys_of(groups, tracks) for rank, tracks in of_rank.items()}
        if all(calls.values()):
            return _first_turn(calls)
    return {}


def _first_turn(calls: Mapping[int, Sequence[Hashable]]) -> dict[int, bool]:
    made = numbered({rank: (0, of_rank) for rank, of_rank in calls.items()})
    found = first_difference(made)
    if found is None or any(one.end > found.seq + MAX_SINCE for one in made.values()):
        return {}
    is_known = set(codes_before(made, found.seq).tolist()).issuperset(found.codes.values())
    return {rank: rank not in found.odd for rank in calls} if found.usual is not None and is_known else {}


def _lines(groups: Sequence[Group], tracks: Sequence[tuple[int, Track]]) -> list[Hashable]:
    """The places in the program of all calls of one rank, in their order; none where not all are known."""
    del groups
    return _in_order(tracks, lambda _, t, entry: t.dump.stacks[t.ring.site[entry]] if len(t.ring.site) else ())


def _kinds(groups: Sequence[Group], tracks: Sequence[tuple[int, Track]]) -> list[Hashable]:
    """What they were, and in which of its groups in the order in which it made them; none where names do not tell."""
    names = {number: groups[number].name for number, _ in tracks}
    if not all(name.isdecimal() for name in names.values()):
        return []
    turn = {number: at for at, number in enumerate(sorted(names, key=lambda n: int(names[n])))}
    return _in_order(tracks, lambda n, t, entry: (turn[n], t.dump.shapes[t.ring.shape[entry]].name, t.numels(entry)[0]))


def _in_order(
    tracks: Sequence[tuple[int, Track]], keys_of: Callable[[int, Track, int], tuple[Hashable, ...]]
) -> list[Hashable]:
    every: list[tuple[int, tuple[Hashable, ...]]] = []
    for number, track in tracks:
        created = track.ring.created_ns
        entries = [entry for entry in track.first if entry >= 0]
        if not track.dump.is_whole or not len(created) or len(entries) > MAX_CALLS:
            return []
        every += [(created[entry], keys_of(number, track, entry)) for entry in entries]
    every.sort(key=lambda call: call[0])
    return [call for _, call in every] if all(call for _, call in every) else []


def _calls(tracks: Sequence[tuple[int, Track]]) -> Codes:
    """A number for each different call of one rank, in the order of their making; none where times are not known."""
    every = sorted(chain.from_iterable(_timed(number, track) for number, track in tracks))
    known = [call for _, call in every[-MAX_CALLS:]] if every and every[0][0] else []
    return numbered({0: (0, known)})[0].known


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
