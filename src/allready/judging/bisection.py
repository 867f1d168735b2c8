"""Finds the members that spoil a group's bandwidth by halving: which groups to measure next, and who it is.

Every half is halved again, whether it is slow or not: groups of one round share no member, so that they run at the same
time, and with several culprits both halves may be slow.  After log2(N) - 1 rounds the groups are pairs.  Every member
of a slow pair is then measured with one of a good pair: the member that makes that slow as well is a culprit.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median, quantiles

from msgspec import Struct

from allready.judging.majority import is_minority
from allready.judging.stated import said
from allready.model import GroupPoint, Phrase, ranges

SLOW = 0.88
"""Of the rate of good groups of the same size."""
ALONE = 0.6
"""The same, where only one group is good."""
GAP = 0.75
"""So much of how far good pairs differ must lie between slow pairs and them: they are only measured again then."""
SURE_GAP = 1.0
"""The same for a member that is named, by the mean of its two pairs."""
MIN_LOSS_SHARE = 0.5
"""Of what a culprit loses, the larger groups that it was in must show so much: they are as fast as their slowest."""
MIN_MEMBERS = 4

Groups = tuple[tuple[int, ...], ...]
_MAX_CONFIRMING = 4


class Search(Struct, frozen=True, kw_only=True):
    """How far a search is.  `groups`: to be measured next; () when it is over, and then `culprits` stand."""

    groups: Groups = ()
    culprits: dict[int, float] = {}  # member -> its share of the rate of good pairs; 0 where its group failed
    suspects: tuple[int, ...] = ()  # members of slow pairs that could not be distinguished from each other
    good_gb_per_s: float = 0.0


def halves(members: Sequence[int], number: int) -> Groups:
    """The groups of round `number` (from 1): 2**number groups of almost the same size, none smaller than two."""
    count = max(1, min(2**number, len(members) // 2))
    bounds = [len(members) * i // count for i in range(count + 1)]
    return tuple(tuple(members[a:b]) for a, b in pairwise(bounds))


def num_levels(members: Sequence[int]) -> int:
    """Rounds until the groups have two or three members."""
    number = 1
    while 2**number < len(members) // 2:
        number += 1
    return number


def search(members: Sequence[int], rounds: Sequence[Sequence[GroupPoint]]) -> Search:
    """What follows from the rounds so far.  Pure: the same on every rank."""
    if len(members) < MIN_MEMBERS:
        return Search()
    levels = num_levels(members)
    if len(rounds) < levels:
        return Search(groups=halves(members, len(rounds) + 1))
    pairs = rounds[levels - 1]
    apart, good = _below_gap(pairs)
    slow = [p for p in pairs if _is_slow(p, good) and (p.gb_per_s or 0.0) <= apart]
    suspects = [m for p in slow for m in p.members]
    sound = [m for p in pairs if p not in slow for m in p.members]
    if not slow:
        return Search(good_gb_per_s=good)
    if not sound:
        return Search(suspects=tuple(suspects), good_gb_per_s=good)
    confirming = rounds[levels:]
    found: dict[int, float] = {}
    cleared: set[int] = set()
    usual = [p.gb_per_s or 0.0 for points in (pairs, *confirming) for p in points if not _is_slow(p, good)]
    limit = min(usual) - SURE_GAP * (max(usual) - min(usual))  # above it: not far from how the good ones differ
    first = {m: p.gb_per_s or 0.0 for p in slow for m in p.members}
    for point in (p for points in confirming for p in points):
        [suspect] = [m for m in point.members if m in suspects][:1] or [-1]
        rate = point.gb_per_s or 0.0
        if _is_slow(point, good) and (rate + first.get(suspect, rate)) / 2 < limit:
            found[suspect] = (point.gb_per_s or 0.0) / good if good else 0.0
        else:
            cleared.add(suspect)
    open_ = [m for m in suspects if m not in found and m not in cleared]
    # Of two members of one slow pair the slower explains it: the other needs a slow pair of its own.
    for p in slow:
        of = {m: found[m] * good for m in p.members if m in found}
        found = {m: s for m, s in found.items() if m not in of or of[m] == min(of.values()) or of[m] < limit}
    larger = rounds[: levels - 1]
    found = {m: share for m, share in found.items() if not any(_is_refuted(m, share, r, found) for r in larger)}
    if not open_ or len(confirming) >= _MAX_CONFIRMING:
        if not is_minority(len(found), len(members)):  # then it is not known which ones are as they should be
            return Search(suspects=tuple(suspects), good_gb_per_s=good)
        return Search(culprits=found, suspects=tuple(open_), good_gb_per_s=good)
    return Search(groups=tuple((min(a, b), max(a, b)) for a, b in zip(open_, sound, strict=False)), good_gb_per_s=good)


def in_rounds(groups: Sequence[GroupPoint]) -> list[list[GroupPoint]]:
    """What was measured, round by round."""
    rounds: list[list[GroupPoint]] = [[] for _ in range(1 + max((g.round for g in groups), default=-1))]
    for group in groups:
        rounds[group.round].append(group)
    return rounds


def in_round(group: GroupPoint) -> Phrase:
    """A measurement as a source of evidence."""
    return said("round {round}, ranks {ranks}", round=group.round + 1, ranks=ranges(group.members))


def _good_rate(rates: Sequence[float]) -> float:
    """What good groups reach: the upper quarter, so that it holds with culprits in most of them."""
    if len(rates) < 2:
        return rates[0] if rates else 0.0
    return quantiles(rates, n=4, method="inclusive")[2]


def _below_gap(points: Sequence[GroupPoint]) -> tuple[float, float]:
    """Up to which rate groups are slow, and that of good ones.

    A gap separates slow groups from the others, beside how these differ themselves.

    Groups that differ by a few percent each have a last one too.  A single good group shows no such difference: the gap
    below it must be far wider.
    """
    rates = sorted(p.gb_per_s or 0.0 for p in points)
    usual = _good_rate([rate for rate in rates if rate])
    for count in range(len(rates) - 1, 0, -1):
        last, gap, differ = rates[count - 1], rates[count] - rates[count - 1], rates[-1] - rates[count]
        is_alone = count == len(rates) - 1 > 1
        good = rates[-1] if is_alone else usual
        if last < (ALONE if is_alone else SLOW) * good and gap > GAP * differ:
            return last, good
    return -1.0, usual


def _is_refuted(member: int, share: float, points: Sequence[GroupPoint], found: Mapping[int, float]) -> bool:
    """Whether the group that a member was in was hardly slower than one of the same size without a culprit."""
    own = next((p for p in points if member in p.members), None)
    others = [p.gb_per_s for p in points if own and len(p.members) == len(own.members) and not {*p.members} & {*found}]
    rates = [rate for rate in others if rate is not None]
    if own is None or own.gb_per_s is None or not rates:
        return False
    return own.gb_per_s > (1 - MIN_LOSS_SHARE * (1 - share)) * median(rates)


def _is_slow(point: GroupPoint, good: float) -> bool:
    return point.gb_per_s is None or point.gb_per_s < min(SLOW, 1.0 - point.noise_share) * good
