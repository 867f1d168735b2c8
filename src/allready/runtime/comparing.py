"""Whether ranks that meet in a call call the same: the hub's side.  Pure like `agreement`."""

from collections.abc import Iterator, Mapping

from allready.model import CallArguments, Misfit
from allready.runtime import messages as m
from allready.runtime.messages import Ranks

MAX_MISFITS = 16

Said = dict[int, m.Compare]


class Comparisons:
    """Calls that at least one rank did not expect, until all ranks of their group have said what they call there."""

    def __init__(self) -> None:
        self._said: dict[Ranks, dict[int, Said]] = {}

    def add(self, rank: int, message: m.Compare) -> bool:
        """What one rank calls; whether it is the first to speak of that call."""
        said = self._said.setdefault(message.group, {}).setdefault(message.number, {})
        said.setdefault(rank, message)
        return len(said) == 1

    def next(self, group: Ranks, size: int) -> tuple[int, Said] | None:
        """The number of the first call of the group that is open, if all have spoken: a later one counts only then."""
        open_calls = self._said.get(group, {})
        number = min(open_calls, default=0)
        if not number or len(open_calls[number]) < size:
            return None
        return number, open_calls.pop(number)

    def differing(self, group: Ranks, number: int, of: Ranks) -> tuple[int, ...]:
        """Those that have said what they call as this number, if it cannot fit whatever the others will say."""
        said = self._said.get(group, {}).get(number, {})
        calls = calls_of(said)
        return tuple(said) if calls and (not are_alike(calls) or misfits_of(calls, of)) else ()

    def waiting(self, rank: int, members: Ranks) -> Ranks | None:
        """The first group in which a call waits for what this rank has to say; None: there is no such group."""
        for group, calls in self._said.items():
            if rank in (group or members) and any(rank not in said for said in calls.values()):
                return group
        return None

    def state(self) -> list[object]:
        """All of it, in a fixed order."""
        return [
            [group, number, sorted(said.items())]
            for group, calls in sorted(self._said.items())
            for number, said in sorted(calls.items())
        ]


def calls_of(said: Said) -> dict[int, CallArguments]:
    """By rank, as far as known.

    Who has gone on since had called what all expected.  What one rank expects, all do, but for the splits of their own.
    """
    expected = next((s.expected.shared for s in said.values() if s.expected is not None), None)
    found = {rank: s.called or expected for rank, s in said.items()}
    return {rank: called for rank, called in sorted(found.items()) if called is not None}


def are_alike(calls: Mapping[int, CallArguments]) -> bool:
    """Whether it is the same call on all ranks, but for splits."""
    first = next(iter(calls.values())).shared
    return all(called.shared == first for called in calls.values())


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
    places = {rank: place for place, rank in enumerate(of)}
    known = {rank: called for rank, called in calls.items() if called.sends}
    for sender, one in known.items():
        for receiver, other in known.items():
            sent, expected = _part(one.sends, places[receiver]), _part(other.receives, places[sender])
            if sent != expected:
                yield Misfit(sender=sender, receiver=receiver, num_sent=sent, num_expected=expected)


def _part(parts: Ranks, place: int) -> int:
    return parts[place] if len(parts) > 1 else parts[0]
