"""The calls of one group compared, whichever evidence has them: the one way from calls to a `Mismatch`.

Dumps, COLL lines, live cells and the watchdog's lines say what they know as `GroupCalls`, and no more: a call of which
too little is recorded is `ANY`, a field that is not recorded is None, and neither differs from anything.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from allready.judging.majority import is_tie
from allready.judging.sequence import (
    Calls,
    Codes,
    FirstDifference,
    agree,
    codes_before,
    first_difference,
    out_of_turn,
    shift_of,
)
from allready.model import Mismatch, Operation, Origin, Recorder

MAX_SHIFT = 64
"""Calls that a rank may have made more or less than the others to be found out by the rest of its record."""
MAX_AFTER = 256
"""Calls from the first difference on that are asked for it."""


class GroupCalls(Struct, frozen=True, kw_only=True):
    """What one kind of evidence has of the calls of one group.

    `calls`: of members of which it has any, also none; `roots`: the same calls by the root that they named.  `members`:
    all that take part besides; `num_members`: how many, where only that is known of some.  `operation`, `origin`: a
    member's call where members differ, and where it is recorded; `kind`: in what they differ, where operations do not
    show it.  `cut`: members whose record ends before their calls do.  `max_shift`: calls more or less that are tried;
    `min_agreement`: calls that must be equal again after them.  `is_whole`: no member made further calls.
    """

    group: str
    base_name: str = ""
    label: str = ""
    source: Recorder
    calls: Mapping[int, Calls]
    roots: Mapping[int, Calls] = {}
    operation: Callable[[int, FirstDifference], Operation | None]
    origin: Callable[[int, int], Origin | None] = lambda _rank, _seq: None
    kind: str = ""
    members: Collection[int] = ()
    num_members: int = 0
    cut: Collection[int] = ()
    max_shift: int = MAX_SHIFT
    min_agreement: int = 1
    is_whole: bool = False

    def compare(self) -> tuple[Mismatch, FirstDifference] | None:
        """The first number under which members made different calls, or the same with different roots."""
        call = self.difference()
        root = first_difference(self.roots, self.members, num_members=self.num_members)
        if root is not None and (call is None or root.seq < call.seq):
            made = self.operations(root)
            if len({o.name for o in made.values()}) == 1:  # else it is another call
                return self.mismatch("root", root.seq, made, odd=root.odd), root
        return (self._other_call(call), call) if call is not None else None

    def difference(self) -> FirstDifference | None:
        """The first number under which members made different calls; on a tie those are odd that broke the loop."""
        found = first_difference(self.calls, self.members, num_members=self.num_members)
        if found is None:
            return None
        late = out_of_turn(codes_before(self.calls, found.seq), found.codes)
        if late and is_tie(found.codes, {*self.members, *self.calls}, num_members=self.num_members):
            found = replace(found, usual=next(c for r, c in found.codes.items() if r not in late), odd=late)
        return replace(found, late=late if found.odd in {(), late} else ())  # else most have left the loop

    def _other_call(self, found: FirstDifference) -> Mismatch:
        """With the calls more or less that explain it, if any do."""
        made = self.operations(found)
        kind = self.kind or kind_of(made.values())
        what_follows = tails(self.calls, found)
        shift = common_shift(
            self.calls, what_follows, self.min_agreement, max_shift=self.max_shift, is_whole=self.is_whole
        )
        usual, odd = (what_follows[rank][1:] for rank in found.examples())
        return self.mismatch(
            kind,
            found.seq,
            made,
            odd=found.odd,
            shift=shift if found.odd or shift is None else abs(shift),
            out_of_turn=found.late,
            is_same_call=shift is None and agree(usual, odd, 1) and kind != "name" and not found.late,
        )

    def operations(self, found: FirstDifference) -> dict[int, Operation]:
        """What members called there."""
        return {rank: made for rank in found.codes if (made := self.operation(rank, found)) is not None}

    def mismatch(self, kind: str, seq: int, by_rank: Mapping[int, Operation], **known: Any) -> Mismatch:
        """As findings have it; `known`: its other fields."""
        ended = tuple(r for r, one in self.calls.items() if one.end <= seq and r not in self.cut)
        return Mismatch(
            group=self.group,
            base_name=self.base_name,
            source=self.source,
            label=self.label,
            kind=kind,
            seq=seq,
            by_rank=by_rank,
            origins={rank: origin for rank in by_rank if (origin := self.origin(rank, seq)) is not None},
            **({"missing": ended} | known),
        )


_ASPECTS: Mapping[str, Callable[[Operation], object]] = {
    "name": lambda o: o.name or None,
    "size": lambda o: o.num_elements,
    "dtype": lambda o: o.dtype,
    "root": lambda o: o.root,
    "redop": lambda o: o.redop,
}


def kind_of(made: Collection[Operation]) -> str:
    """The first of name, size, dtype, root and redop in which calls differ that differ; "size" where none shows it."""
    values = ((kind, {value(o) for o in made} - {None}) for kind, value in _ASPECTS.items())
    return next((kind for kind, known in values if len(known) > 1), "size")


def tails(calls: Mapping[int, Calls], found: FirstDifference) -> dict[int, Codes]:
    """What follows from the first difference on, of one member for each different call; a usual one comes first."""
    usual, _ = found.examples()
    others = {code: rank for rank, code in sorted(found.codes.items(), reverse=True) if code != found.codes[usual]}
    ends = {rank: min(found.seq + MAX_AFTER, calls[rank].end) for rank in (usual, *sorted(others.values()))}
    return {rank: calls[rank].codes(found.seq, end) for rank, end in ends.items()}


def common_shift(
    calls: Mapping[int, Calls],
    what_follows: Mapping[int, Codes],
    min_agreement: int,
    *,
    max_shift: int = MAX_SHIFT,
    is_whole: bool = False,
) -> int | None:
    """How many calls those that differ made more (or fewer, negative), if one number explains all that follows."""
    usual, *others = what_follows
    shifts = {
        shift_of(
            what_follows[usual],
            what_follows[other],
            surplus=calls[other].end - calls[usual].end,
            most=max_shift,
            least=min_agreement,
            is_whole=is_whole,
        )
        for other in others
    }
    return shifts.pop() if len(shifts) == 1 else None
