"""Ranks that wait for each other in a circle of groups, and whether one of them is the odd one."""

from collections.abc import Sequence

from msgspec import Struct

from allready.judging.analysis import Analysis
from allready.judging.hang import HangBlame, HangKind, blame_hang
from allready.judging.majority import majority
from allready.judging.mismatch import described
from allready.judging.waits import Wait, WaitSnapshot
from allready.model import RunEvidence


class Circle(Struct, frozen=True, kw_only=True):
    """`odd`: the few that took the groups in another order than most, () where none is odd."""

    blame: HangBlame
    snapshot: WaitSnapshot
    ranks: tuple[int, ...]
    odd: tuple[int, ...]
    others: tuple[int, ...]

    def chain(self) -> str:
        """`0 -> 3 (pair: all_reduce #7), 3 -> 0 (...)`."""
        names = []
        for rank, following in zip(self.ranks, (*self.ranks[1:], self.ranks[0]), strict=True):
            wait = next(
                (w for w in self.snapshot.waits if rank in w.waiting and following in {*w.behind, *w.unseen}), None
            )
            if wait is not None:
                names.append(f"{rank} -> {following} ({wait_label(wait)})")
        return ", ".join(names)


def wait_label(wait: Wait) -> str:
    """Group and operation."""
    return f"{wait.label or wait.group}: #{wait.operation.seq} {described(wait.operation)}"


def circle_of(case: Analysis) -> Circle | None:
    """The circle, if that is what explains the hang; of a running job only when all of it has stood still."""
    found = case.of(blame_hang)
    if found.kind is not HangKind.CIRCLE or found.snapshot is None:
        return None
    waits = [w for w in found.snapshot.waits if set(w.waiting) & set(found.ranks)]
    odd = _left_its_loop(case.run, waits) or _outvoted(waits)
    others = tuple(sorted({r for w in waits for r in w.waiting} - set(odd))) if odd else ()
    return Circle(blame=found, snapshot=found.snapshot, ranks=found.ranks, odd=odd, others=others)


def _left_its_loop(run: RunEvidence, waits: Sequence[Wait]) -> tuple[int, ...]:
    """Those that called another operation of their loop than its turn, where all others that wait kept to it."""
    waiting = {r for w in waits for r in w.waiting}
    left = tuple(sorted(r for r in waiting if run.turns.get(r) is False))
    return left if len(left) < len(waiting) and all(run.turns.get(r) for r in waiting - set(left)) else ()


def _outvoted(waits: Sequence[Wait]) -> tuple[int, ...]:
    """Of the ranks that meet in all of these groups: those that wait in another one than most of them."""
    members = [{*w.waiting, *w.behind, *w.unseen} for w in waits]
    common = set.intersection(*members) if members else set[int]()
    if any(w.unseen for w in waits):
        return ()
    most = majority({r: at for at, w in enumerate(waits) for r in w.waiting if r in common}, common)
    return most.odd if most is not None else ()
