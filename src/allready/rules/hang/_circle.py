"""Ranks that wait for each other in a circle of groups, and whether one of them is the odd one."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from allready.judging.analysis import Analysis
from allready.judging.hang import HangBlame, HangKind, blame_hang, left_its_loop
from allready.judging.last_calls import last_calls
from allready.judging.majority import majority
from allready.judging.mismatch import described
from allready.judging.run_signs import who
from allready.judging.siblings import out_of_order
from allready.judging.stated import said
from allready.judging.waits import Wait, WaitSnapshot
from allready.model import CallSite, Phrase, RunEvidence, ranges

RECORD_S = 5.0
"""What records get to say which operations they are; of a running job first only their numbers are known."""

MAX_SIDES = 8
"""Waits that a message shows."""


class Circle(Struct, frozen=True, kw_only=True):
    """`odd`: the few that took the groups in another order than most, () where none is odd.  `sites`: rank -> the line
    of the program at which it stands, as far as known."""

    blame: HangBlame
    snapshot: WaitSnapshot
    ranks: tuple[int, ...]
    odd: tuple[int, ...]
    others: tuple[int, ...]
    sites: Mapping[int, CallSite]

    @property
    def num_sides(self) -> int:
        """Operations that ranks of the circle wait in."""
        return len(self.blame.halves) + sum(bool(set(w.waiting) & set(self.ranks)) for w in self.snapshot.waits)

    def label(self, wait: Wait) -> str:
        """Group, operation and the line of the program, where one is known."""
        site = next((s for r in wait.waiting if r in self.ranks and (s := self.sites.get(r))), None)
        return wait_label(wait) + (f" ({site})" if site and not wait.operation.site else "")

    def sides(self, run: RunEvidence) -> tuple[Phrase, ...]:
        """Who waits in which call for whom, the call that most wait in first."""
        waits = [(w, tuple(r for r in w.waiting if r in self.ranks)) for w in self.snapshot.waits]
        waits = sorted((side for side in waits if side[1]), key=lambda side: (-len(side[1]), side[1]))
        found = [
            said(
                "{who} in {call} for rank {ranks}",
                who=who(run, waiting, with_processes=False),
                call=self.label(wait),
                ranks=ranges(tuple(sorted({*wait.behind, *wait.unseen}))),
            )
            for wait, waiting in waits
        ]
        found += [
            said(
                "{who} in {call} for rank {ranks}",
                who=who(run, (rank,), with_processes=False),
                call=half.call + (f" ({half.site})" if half.site is not None else ""),
                ranks=half.peer,
            )
            for rank, half in sorted(self.blame.halves.items())
        ]
        more = len(found) - MAX_SIDES
        return (*found[:MAX_SIDES], said("{num} more", num=more)) if more > 0 else tuple(found)


def wait_label(wait: Wait) -> str:
    """Group and operation."""
    return f"{wait.called}: #{wait.operation.seq} {described(wait.operation)}"


def circle_of(case: Analysis) -> Circle | None:
    """The circle, if that is what explains the hang; of a running job only when all of it has made no progress."""
    found = case.of(blame_hang)
    if found.kind is not HangKind.CIRCLE or found.snapshot is None:
        return None
    waits = [w for w in found.snapshot.waits if set(w.waiting) & set(found.ranks)]
    if case.live is not None and found.for_s < RECORD_S and not all(w.operation.name for w in waits):
        return None  # in a moment it is known what they wait in, and who left the order
    odd = left_its_loop(case.run, {*found.halves, *(r for w in waits for r in w.waiting)}, waits)
    if not found.halves:  # else not all that is waited for is an operation of a group
        odd = odd or _outvoted(waits) or _only_key(waits) or out_of_order(case.run, waits)
    elsewhere = [w for w in waits if odd and not set(odd) & set(w.waiting)]
    others = tuple(sorted({r for w in elsewhere for r in w.waiting}))
    sites = sites_of(case)
    return Circle(
        blame=found, snapshot=found.snapshot, ranks=tuple(sorted(found.ranks)), odd=odd, others=others, sites=sites
    )


def sites_of(case: Analysis) -> dict[int, CallSite]:
    """Rank -> the line of the program at which it stands."""
    sites = {s.rank: s.site for s in case.run.stacks if s.rank is not None and s.role == "rank" and s.site}
    sites |= {rank: call.site for rank, call in last_calls(case.run).items() if call.site is not None}
    if case.live is not None:
        sites |= {r: site for r, status in case.live.ranks().items() if (site := status.call_site) is not None}
    return sites


def _outvoted(waits: Sequence[Wait]) -> tuple[int, ...]:
    """Of the ranks that meet in all of these groups: those that wait in another one than most of them."""
    members = [{*w.waiting, *w.behind, *w.unseen} for w in waits]
    common = set.intersection(*members) if members else set[int]()
    if any(w.unseen for w in waits):
        return ()
    most = majority({r: at for at, w in enumerate(waits) for r in w.waiting if r in common}, common)
    return most.odd if most is not None else ()


def _only_key(waits: Sequence[Wait]) -> tuple[int, ...]:
    """The one rank with whom another operation that is waited in would be complete.

    Without the one that left the order no rank would be stuck: in its right place it completes an operation.  Where
    several could (three ranks in three pairs, at first use), the calls alone do not tell which of them it was.
    """
    elsewhere = {r for w in waits for r in w.waiting}
    keys = {w.behind[0] for w in waits if len(w.behind) == 1 and not w.unseen and w.behind[0] in elsewhere}
    return tuple(keys) if len(keys) == 1 else ()
