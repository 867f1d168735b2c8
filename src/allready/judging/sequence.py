"""What the members of a group called, number by number: where they first differ, and what explains it.

One comparison for flight-recorder dumps, for COLL lines, for what agents send every second and for the watchdog's
lines; each of them offers its operations as `Calls`, and `group_calls` makes mismatches of what differs.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from allready.evidence.operation_names import ANY
from allready.judging.majority import majority

Codes = npt.NDArray[np.int64]

CHUNK = 4_096
"""Calls that are compared at once."""

MAX_PERIOD = 256
MIN_PERIODS = 3
MIN_REPEATED = 6
"""Of a loop: the most calls of one iteration, iterations that must be alike, and calls in them."""


class Calls(Protocol):
    """One member's calls in one group: equal codes are equal calls."""

    @property
    def begin(self) -> int:
        """Number of the first call that is known."""
        ...

    @property
    def end(self) -> int:
        """One more than the last."""
        ...

    def codes(self, begin: int, end: int) -> Codes:
        """The codes of a range inside `begin` to `end`; in rising order it costs least."""
        ...


class KnownCalls(msgspec.Struct, frozen=True):
    """Calls that are all in memory."""

    begin: int
    known: Codes

    @property
    def end(self) -> int:
        """One more than the last number."""
        return self.begin + len(self.known)

    def codes(self, begin: int, end: int) -> Codes:
        """The codes of a range."""
        return self.known[begin - self.begin : end - self.begin]


def numbered(keys: Mapping[int, tuple[int, Iterable[Hashable]]]) -> dict[int, KnownCalls]:
    """Member -> its calls, from the number of its first one and what each of them was: equal codes for equal keys."""
    numbers: dict[Hashable, int] = {}
    return {
        member: KnownCalls(begin, np.array([numbers.setdefault(k, len(numbers) + 1) for k in calls], dtype=np.int64))
        for member, (begin, calls) in keys.items()
    }


class FirstDifference(msgspec.Struct, frozen=True):
    """The first number at which two members differ.

    `codes`: member -> its call there; of members whose call is not known there, nothing.  `late`: those that broke the
    loop of all, where that was asked for.
    """

    seq: int
    codes: Mapping[int, int]
    usual: int | None
    odd: tuple[int, ...]
    late: tuple[int, ...] = ()

    def examples(self) -> tuple[int, int]:
        """One member of the majority (or the first one) and one that differs from it."""
        one = next(r for r in sorted(self.codes) if self.usual is None or self.codes[r] == self.usual)
        other = (*self.odd, *sorted(self.codes))
        return one, next(r for r in other if self.codes[r] != self.codes[one])


def first_difference(
    calls: Mapping[int, Calls], members: Iterable[int] = (), *, num_members: int = 0
) -> FirstDifference | None:
    """Where members of one group first made different calls, and who differs from the majority of all of them.

    Members whose calls are not known there, since they begin later or ended before, cannot differ; they take part all
    the same, so that two of four that agree are no majority.

    Args:
        calls: of the members of which any are known.
        members: all that take part, besides these.
        num_members: how many take part, where only that is known of some.
    """
    for begin, end in _windows(calls.values()):
        pieces: dict[bytes, tuple[Codes, list[int]]] = {}
        for rank, one in calls.items():
            if one.begin <= begin and end <= one.end:
                codes = one.codes(begin, end)
                pieces.setdefault(codes.tobytes(), (codes, []))[1].append(rank)
        if len(pieces) < 2:
            continue
        at = _first_column([codes for codes, _ in pieces.values()])
        if at is None:
            continue
        here = {rank: int(codes[at]) for codes, ranks in pieces.values() for rank in ranks if codes[at] != ANY}
        most = majority(here, {*members, *calls}, num_members=num_members)
        return FirstDifference(
            seq=begin + at,
            codes=dict(sorted(here.items())),
            usual=most.value if most is not None else None,
            odd=most.odd if most is not None else (),
        )
    return None


def _windows(calls: Iterable[Calls]) -> Iterator[tuple[int, int]]:
    """Ranges inside which no member begins or ends, none longer than `CHUNK`."""
    breaks = sorted({end for one in calls for end in (one.begin, one.end)})
    for low, high in pairwise(breaks):
        for begin in range(low, high, CHUNK):
            yield begin, min(begin + CHUNK, high)


def _first_column(pieces: list[Codes]) -> int | None:
    """The first place at which two pieces have different codes; ANY differs from none."""
    table = np.array(pieces)
    highest = table.max(axis=0)
    lowest = np.where(table == ANY, highest, table).min(axis=0)
    differ = np.flatnonzero(lowest != highest)
    return int(differ[0]) if len(differ) else None


def codes_before(calls: Mapping[int, Calls], seq: int) -> Codes:
    """The most that is known of the calls before a number, of any one member; no more than tell a loop."""
    known = [one for one in calls.values() if one.begin < seq <= one.end]
    longest = min(known, key=lambda one: one.begin, default=None)
    return np.array([], dtype=np.int64) if longest is None else longest.codes(max(longest.begin, seq - CHUNK), seq)


class Loop(msgspec.Struct, frozen=True):
    """Calls that repeat exactly to the end of what is known: from `begin` (a place), `period` calls in an iteration."""

    begin: int
    period: int


def loop_of(known: Codes) -> Loop | None:
    """The loop that the calls have come to; None where they do not repeat exactly.

    What was called before the loop (other settings of groups, a first check) may come first, as long as the loop makes
    most of what is known; an operation now and then (an evaluation) is no exact repetition.
    """
    for period in range(1, min(MAX_PERIOD, len(known) // MIN_PERIODS) + 1):
        breaks = np.flatnonzero(known[period:] != known[:-period])
        begin = int(breaks[-1]) + 1 if len(breaks) else 0
        if len(known) - begin >= max(MIN_PERIODS * period, MIN_REPEATED, len(known) // 2):
            return Loop(begin, period)
    return None


def out_of_turn(known: Codes, here: Mapping[int, int]) -> tuple[int, ...]:
    """Members whose call breaks the loop that all have made so far, where others go on with it.

    Only where the loop has that call as well, at another place: one that it never has may be missing in the others.

    Args:
        known: calls before, of which all members made the same.
        here: member -> its next call.
    """
    loop = loop_of(known)
    if loop is None or ANY in here.values():
        return ()
    turn = known[-loop.period :]  # the first of these is the next one
    odd = tuple(sorted(r for r, code in here.items() if code != turn[0]))
    return odd if len(odd) < len(here) and all(here[r] in turn for r in odd) else ()


def shift_of(
    usual: Codes, odd: Codes, *, surplus: int, most: int, least: int = 1, is_whole: bool = False
) -> int | None:
    """How many calls more (or, negative, fewer) the odd member made at the first difference, after which both agree.

    None when they agree without any (the same call with other arguments), or never, or when more and fewer explain it
    equally well and the totals bear out neither.

    Args:
        usual: calls from the first difference on; of the majority.
        odd: the same of a member that differs.
        surplus: how many calls more the odd member has made in all.
        most: the longest shift that is tried.
        least: calls that must agree again.
        is_whole: both made no further calls, so that the totals are final.
    """
    borne_out = surplus if 0 < abs(surplus) <= most and _agree_after(usual, odd, surplus, least) else None
    if agree(usual[1:], odd[1:], 1):
        return borne_out if is_whole else None  # calls that are all alike agree after any shift as well
    for step in range(1, min(most, max(len(usual), len(odd))) + 1):
        more, fewer = (_agree_after(usual, odd, sign * step, least) for sign in (1, -1))
        if more and fewer:  # in a loop of two calls, one more and one fewer look alike
            return borne_out
        if more or fewer:
            return step if more else -step
    return None


def _agree_after(usual: Codes, odd: Codes, shift: int, least: int) -> bool:
    return agree(usual, odd[shift:], least) if shift > 0 else agree(usual[-shift:], odd, least)


def agree(one: Codes, other: Codes, least: int) -> bool:
    """Whether both have the same calls as far as both go, which must be `least` calls at least."""
    both = min(len(one), len(other))
    a, b = one[:both], other[:both]
    return both >= least and not np.any((a != b) & (a != ANY) & (b != ANY))
