"""Who is a call ahead of the others in one of its groups, or behind, while the job goes on.

A rank that leaves out a call of one group, or makes one too many, need not hang: its calls then meet those of another
iteration of the loop, of the same kind and size.  Numbers of one group compare only inside of it; but a rank in two
groups makes their calls in one order, and so it shows: before call 100 of its column it had made 49 of its row, all
others 50.
"""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Protocol

from allready.judging.majority import majority
from allready.model import CallShift

MIN_RANKS = 3
"""Of two ranks it is not known which one is ahead."""
MIN_CALLS = 12
"""For so many calls in a row the difference must be the same, and for as many before it there must be none: calls
of several threads come in any order."""
MAX_SEARCH = 2000


class Made(Protocol):
    """The calls of one rank in one group that are still known, oldest first: numbers, and when it made them."""

    @property
    def seqs(self) -> Sequence[int]: ...
    @property
    def created(self) -> Sequence[float]: ...
    def place_of(self, seq: int) -> int | None: ...
    def last_before(self, created_s: float) -> int | None: ...
    def last_call(self) -> str | None: ...


Groups = Mapping[str, Mapping[int, Made]]
"""Group -> rank -> its calls."""


def call_shift(groups: Groups, labels: Mapping[str, str]) -> CallShift | None:
    """The one rank whose calls of a group lie a constant number apart from where those of all others do.

    Args:
        groups: all that are known; of groups with one member nothing follows.
        labels: group -> what it is called; ranks that have no group, or several, under a label are not compared by it.
    """
    roles = _roles(groups, labels)
    found: dict[tuple[int, bool], CallShift] = {}
    for base, beside in permutations(sorted(roles), 2):
        if len(roles[base]) < MIN_RANKS or roles[base].keys() != roles[beside].keys():
            continue
        bases, besides = ({r: groups[g][r] for r, g in roles[label].items()} for label in (base, beside))
        odd = _odd(bases, besides)
        if odd is not None:
            rank, num, seq, numbers = odd
            shift = CallShift(
                rank=rank, label=beside, base=base, seq=seq, numbers=numbers, operation=besides[rank].last_call()
            )
            found[abs(num), num > 0] = shift  # one call less of one group may be as many more of the other
    return found[min(found)] if found else None


def _roles(groups: Groups, labels: Mapping[str, str]) -> dict[str, dict[int, str]]:
    """Label -> rank -> its one group of that label."""
    found: dict[str, dict[int, str]] = {}
    several: set[tuple[str, int]] = set()
    for name, lines in groups.items():
        label = labels.get(name, "")
        for rank in lines if label and len(lines) > 1 else ():
            several |= {(label, rank)} if rank in found.get(label, {}) else set()
            found.setdefault(label, {})[rank] = name
    for label, rank in several:
        found[label].pop(rank, None)
    return found


def _odd(bases: Mapping[int, Made], besides: Mapping[int, Made]) -> tuple[int, int, int, dict[int, int]] | None:
    """(Rank, how many calls more, the newest call of the base, rank -> calls beside it) where one rank differs from all
    others, each time by as many calls."""
    newest = min((line.seqs[-1] if len(line.seqs) else 0 for line in bases.values()), default=0)
    if newest < MIN_CALLS:
        return None
    apart: set[tuple[int, int]] = set()
    first: dict[int, int] = {}
    for seq in range(newest, newest - MIN_CALLS, -1):
        numbers = _before(bases, besides, seq)
        most = majority(numbers, bases)
        if most is None or len(most.odd) != 1 or len(most.members) != len(bases) - 1:
            return None
        [rank] = most.odd
        apart.add((rank, numbers[rank] - most.value))
        first = first or numbers
        if len(apart) > 1:
            return None
    [(rank, num)] = apart
    return (rank, num, newest, first) if _was_even(bases, besides, newest - MIN_CALLS) else None


def _was_even(bases: Mapping[int, Made], besides: Mapping[int, Made], newest: int) -> bool:
    """Whether all made the calls in one order before: who always makes them in another one does so by design, and a
    thread that loads ahead is some calls ahead from the beginning."""
    even = 0
    for seq in range(newest, max(0, newest - MAX_SEARCH), -1):
        numbers = _before(bases, besides, seq)
        is_even = len(numbers) == len(bases) and len({*numbers.values()}) == 1
        even = even + 1 if is_even else 0
        if even >= MIN_CALLS:
            return True
    return False


def _before(bases: Mapping[int, Made], besides: Mapping[int, Made], seq: int) -> dict[int, int]:
    """Rank -> the number of the last call that it had made beside this one; of ranks of which it is known."""
    found = {}
    for rank, line in bases.items():
        at = line.place_of(seq)
        number = besides[rank].last_before(line.created[at]) if at is not None else None
        if number is not None:
            found[rank] = number
    return found
