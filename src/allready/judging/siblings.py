"""Groups that make the same calls as another one: pairs of ranks beside pairs, columns of a mesh beside columns.

Where members of a group differ and no majority of them tells who is odd (of two neither is one), the groups beside it
that made the same calls until then show whose turn it was.  Without any, it is what the group itself called the last
time after the same line of the program: long before its loop has gone round often enough to be known as one.
In a circle of waits over two groups it is those beside them that show which of the two comes first.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from msgspec.structs import replace

from allready.evidence.flight.groups import Group
from allready.evidence.flight.tracks import Track, operation_at
from allready.judging.majority import is_tie, majority
from allready.judging.mismatch import UNMET
from allready.judging.waits import Wait
from allready.model import CallSite, GroupProgress, Mismatch, Operation, Recorder, RunEvidence

MAX_COMPARED = 256
"""Calls before the one in question that must be the same, the last ones."""
MAX_AROUND = 16
"""Calls of a sibling, before and behind, among which a call that came too early or too late is looked for."""


class Beside(Protocol):
    """What tells whether two groups may be alike, of records as of positions."""

    @property
    def label(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def parties(self) -> Sequence[int]: ...


Joined = Sequence[tuple[Group, Mapping[int, Track]]]


def are_siblings(one: Beside, other: Beside) -> bool:
    """Whether they are groups of as many other ranks under one label: pairs beside pairs, columns beside columns."""
    ours, theirs = set(one.parties), set(other.parties)
    return (
        bool(ours and theirs)
        and not ours & theirs
        and one.label == other.label
        and (one.size == other.size or not (one.size and other.size))
    )


def with_siblings(run: RunEvidence, groups: Joined) -> RunEvidence:
    """The mismatches, and of those in which no rank is odd, who called something else than the groups beside it."""
    named = {group.title: (group, tracks) for group, tracks in groups if tracks}
    kept = tuple(
        _by_siblings(m, *named[m.group], groups)
        if m.source == Recorder.FLIGHT and not m.odd and not m.misfits and m.kind != UNMET and m.group in named
        else m
        for m in run.mismatches
    )
    return replace(run, mismatches=kept)


def patterns(
    group: Group, tracks: Mapping[int, Track], groups: Joined, seq: int, sites: Iterable[CallSite | None]
) -> list[dict[int, Operation]]:
    """The calls of each group that is like this one, around this number.

    Args:
        group: whose members differ at `seq`.
        tracks: theirs.
        groups: all of the job.
        seq: the number in question.
        sites: lines of the program at which they stand there: of groups that have made no call yet, nothing else shows
            that they are alike.
    """
    known = set(sites) - {None}
    found = (_pattern(group, tracks, other, theirs, seq, known) for other, theirs in groups if other is not group)
    return [pattern for pattern in found if pattern]


def out_of_order(run: RunEvidence, waits: Sequence[Wait]) -> tuple[int, ...]:
    """Of two operations that are waited in: those that make one of them before the other, or after it, where the groups
    that are like theirs do it the other way round."""
    if len(waits) != 2:
        return ()
    found: set[tuple[int, ...]] = set()
    for wait, other in ((waits[0], waits[1]), (waits[1], waits[0])):
        made, left_out = tuple(wait.waiting), tuple(sorted(set(wait.behind) & set(other.waiting)))
        for sibling in _known_beside(run, wait):
            reached = {p.enqueued for p in sibling.positions.values()}
            if min(reached) >= wait.operation.seq:
                found.add(left_out)
            elif reached == {wait.operation.seq - 1} and set(sibling.parties) <= set(other.waiting):
                found.add(made)
            else:
                found.add(())
    return found.pop() if len(found) == 1 else ()


def _known_beside(run: RunEvidence, wait: Wait) -> Iterable[GroupProgress]:
    """Its siblings, as far as it is known of all their members how far they came."""
    own = wait.progress
    every = (g for g in run.progress if g.source == own.source and are_siblings(own, g))
    return (g for g in every if set(g.positions) == set(g.parties))


def _by_siblings(mismatch: Mismatch, group: Group, tracks: Mapping[int, Track], groups: Joined) -> Mismatch:
    made, seq = mismatch.by_rank, mismatch.seq
    beside = patterns(group, tracks, groups, seq, (o.site for o in made.values()))
    voted = majority({at: call_key(pattern[seq]) for at, pattern in enumerate(beside) if seq in pattern})
    if voted is None:
        return mismatch if beside else _unlike_before(mismatch, group, tracks)
    pattern = beside[voted.members[0]]
    turn = pattern[seq]
    odd = tuple(sorted(r for r, o in made.items() if not _is_same(o, turn)))
    known = {call_key(o) for o in pattern.values()}
    if not odd or len(odd) == len(made) or not all(call_key(made[r]) in known for r in odd):
        return mismatch  # a call that the groups beside never make may be missing in the others (a stage of its own)
    return _settled(mismatch, group, odd)


def _unlike_before(mismatch: Mismatch, group: Group, tracks: Mapping[int, Track]) -> Mismatch:
    """Who goes on otherwise than all did each time before, with a call that all know: one that they do not know may be
    missing in the others."""
    made, seq = mismatch.by_rank, mismatch.seq
    before = {n: o for n in range(max(1, seq - MAX_COMPARED), seq) if (o := _agreed(group, tracks, n)) is not None}
    last = before.get(seq - 1)
    if last is None or not last.site or not all(o.site for o in made.values()):
        return mismatch
    turns = [before.get(n + 1) for n, o in before.items() if n < seq - 1 and o.site and _is_same(o, last)]
    turn = turns[-1] if turns else None
    if turn is None or not all(t is not None and _is_same(t, turn) for t in turns):
        return mismatch
    odd = tuple(sorted(r for r, o in made.items() if not _is_same(o, turn)))
    is_known = all(any(_is_same(made[r], o) for o in before.values()) for r in odd)
    return _settled(mismatch, group, odd) if len(odd) == 1 < len(made) and is_known else mismatch


def _settled(mismatch: Mismatch, group: Group, late: tuple[int, ...]) -> Mismatch:
    """With those that are out of order, who are odd where they are the half of a tie."""
    even = is_tie({r: r in late for r in mismatch.by_rank}, group.dumps, num_members=group.size)
    one_call = len({call_key(mismatch.by_rank[r]) for r in late}) == 1
    return replace(mismatch, odd=late if even and one_call else (), out_of_turn=late)


def _pattern(
    group: Group,
    tracks: Mapping[int, Track],
    other: Group,
    theirs: Mapping[int, Track],
    seq: int,
    sites: set[CallSite | None],
) -> dict[int, Operation]:
    """{} where it is not alike."""
    if not theirs or not are_siblings(group, other):
        return {}
    before = range(max(1, seq - MAX_COMPARED), seq)
    ours = {n: o for n in before if (o := _agreed(group, tracks, n)) is not None}
    calls = {n: o for n in range(before.start, seq + MAX_AROUND) if (o := _agreed(other, theirs, n)) is not None}
    if any(n in calls and not _is_same(o, calls[n]) for n, o in ours.items()):
        return {}
    around = {n: o for n, o in calls.items() if n > seq - MAX_AROUND}
    is_known = bool(ours.keys() & calls.keys()) or any(o.site in sites for o in around.values())
    return around if is_known else {}


def _agreed(group: Group, tracks: Mapping[int, Track], seq: int) -> Operation | None:
    """What all members that have this number recorded under it; None where they differ."""
    made = [o for t in tracks.values() if (o := operation_at(group, t, seq)) is not None]
    best = max(made, key=lambda o: bool(o.site), default=None)
    return best if best is not None and all(_is_same(best, o) for o in made) else None


def _is_same(one: Operation, other: Operation) -> bool:
    return call_key(one) == call_key(other) and not (one.site and other.site and one.site != other.site)


def call_key(operation: Operation) -> object:
    """What calls that are the same have in common."""
    return operation.name, operation.num_elements, operation.dtype
