"""Whether ranks that meet in a call call the same: the hub's side.  Pure like `agreement`."""

from collections.abc import Iterator, Mapping
from itertools import islice, product

from allready.model import CallArguments, Misfit
from allready.runtime import messages as m
from allready.runtime.messages import Ranks

MAX_MISFITS = 16

Said = dict[int, m.Compare]


class OpenCall:
    """A call that at least one rank did not expect, until all ranks `of` its group have said what they call there.

    What a rank says is compared once, when it comes, and with no more than can decide whether all of it fits.
    `differs`: it cannot, whatever the others will say.
    """

    def __init__(self, of: Ranks) -> None:
        self.said: Said = {}
        self.differs = False
        self._places = _places(of)
        self._first: CallArguments | None = None
        self._expected: CallArguments | None = None
        self._has_gone_on = False
        self._even: dict[int, CallArguments] = {}
        self._uneven: dict[int, CallArguments] = {}

    def add(self, rank: int, message: m.Compare) -> Ranks:
        """What one rank calls; those that have spoken and do not know yet that the call differs."""
        if rank in self.said:
            return ()
        self.said[rank] = message
        if self.differs:
            return (rank,)
        self.differs = not (self._is_as_first(message) and self._fits(rank, message.called))
        return tuple(self.said) if self.differs else ()

    def _is_as_first(self, message: m.Compare) -> bool:
        """Whether it is the same call as that of the first rank, but for splits; see `calls_of`."""
        if self._expected is None and message.expected is not None:
            self._expected = message.expected.shared
        self._has_gone_on |= message.called is None
        calls = (message.called and message.called.shared, self._expected if self._has_gone_on else None)
        known = [called for called in calls if called is not None]
        if self._first is None and known:
            self._first = known[0]
        return all(called == self._first for called in known)

    def _fits(self, rank: int, called: CallArguments | None) -> bool:
        """Whether the splits of a rank fit its own and those of the ranks before it.

        Ranks that send as much to every rank as they receive of every rank, all alike, are as one for another of these;
        only a row of splits has a place for each of them.
        """
        if called is None or not called.sends:
            return True
        is_even = len(called.sends) == len(called.receives) == 1
        others = [*(islice(self._even.items(), 1) if is_even else self._even.items()), *self._uneven.items()]
        (self._even if is_even else self._uneven)[rank] = called
        return all(
            sent == expected
            for other in (*others, (rank, called))
            for sent, expected in (
                _pair((rank, called), other, self._places),
                _pair(other, (rank, called), self._places),
            )
        )


class Comparisons:
    """The open calls, by group and number."""

    def __init__(self) -> None:
        self._open: dict[Ranks, dict[int, OpenCall]] = {}

    def call(self, group: Ranks, number: int, of: Ranks) -> OpenCall:
        """The one that is open, or is now."""
        calls = self._open.setdefault(group, {})
        if number not in calls:
            calls[number] = OpenCall(of)
        return calls[number]

    def next(self, group: Ranks, size: int) -> tuple[int, OpenCall] | None:
        """The number of the first call of the group that is open, if all have spoken: a later one counts only then."""
        calls = self._open.get(group, {})
        number = min(calls, default=0)
        if not number or len(calls[number].said) < size:
            return None
        return number, calls.pop(number)

    def waiting(self, rank: int, members: Ranks) -> Ranks | None:
        """The first group in which a call waits for what this rank has to say; None: there is no such group."""
        for group, calls in self._open.items():
            if rank in (group or members) and any(rank not in call.said for call in calls.values()):
                return group
        return None

    def state(self) -> list[object]:
        """All of it, in a fixed order."""
        return [
            [group, number, sorted(call.said.items())]
            for group, calls in sorted(self._open.items())
            for number, call in sorted(calls.items())
        ]


def calls_of(said: Said) -> dict[int, CallArguments]:
    """By rank, as far as known.

    Who has gone on since had called what all expected.  What one rank expects, all do, but for the splits of their own.
    """
    expected = next((s.expected.shared for s in said.values() if s.expected is not None), None)
    found = {rank: s.called or expected for rank, s in said.items()}
    return {rank: called for rank, called in sorted(found.items()) if called is not None}


def misfits_of(calls: Mapping[int, CallArguments], of: Ranks) -> tuple[Misfit, ...]:
    """What a rank sends another, and that one does not expect: some of them, from all over.

    A rank has a part in all of these only if it has one in those that are left out, too; likewise if it sends in none.
    """
    found = tuple(_misfits(calls, of))
    if len(found) <= MAX_MISFITS:
        return found
    first = found[0]
    others = (
        next((x for x in found if x.sender == first.receiver), first),
        *(next((x for x in found if r not in (x.sender, x.receiver)), first) for r in (first.sender, first.receiver)),
    )
    return tuple(dict.fromkeys((first, *others, *found[:: len(found) // (MAX_MISFITS - 4) + 1])))


def _misfits(calls: Mapping[int, CallArguments], of: Ranks) -> Iterator[Misfit]:
    places = _places(of)
    known = [(rank, called) for rank, called in calls.items() if called.sends]
    for one, other in product(known, known):
        sent, expected = _pair(one, other, places)
        if sent != expected:
            yield Misfit(sender=one[0], receiver=other[0], num_sent=sent, num_expected=expected)


def _places(of: Ranks) -> dict[int, int]:
    return {rank: place for place, rank in enumerate(of)}


def _pair(
    sender: tuple[int, CallArguments], receiver: tuple[int, CallArguments], places: Mapping[int, int]
) -> tuple[int, int]:
    """What the first one sends the other, and what that one expects of it."""
    return _part(sender[1].sends, places[receiver[0]]), _part(receiver[1].receives, places[sender[0]])


def _part(parts: Ranks, place: int) -> int:
    return parts[place] if len(parts) > 1 else parts[0]
