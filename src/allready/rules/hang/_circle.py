"""Ranks that wait for each other in a circle of groups, and whether one of them is the odd one."""

from msgspec import Struct

from allready.judging.analysis import Analysis
from allready.judging.hang import HangBlame, HangKind, blame_hang
from allready.judging.majority import is_majority
from allready.judging.waits import Wait, WaitSnapshot


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
    return f"{wait.label or wait.group}: {wait.operation.name} #{wait.operation.seq}"


def circle_of(case: Analysis) -> Circle | None:
    """The circle, if that is what explains the hang; of a running job only when all of it has stood still."""
    found = case.of(blame_hang)
    if found.kind is not HangKind.CIRCLE or found.snapshot is None:
        return None
    odd, others = _odd(found.snapshot, found.ranks)
    return Circle(blame=found, snapshot=found.snapshot, ranks=found.ranks, odd=odd, others=others)


def _odd(snapshot: WaitSnapshot, ranks: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where the same ranks meet in several groups: those that wait in another one than most of them, and those most."""
    waits = [w for w in snapshot.waits if set(w.waiting) & set(ranks)]
    members = {frozenset({*w.waiting, *w.behind, *w.unseen}) for w in waits}
    if len(members) != 1 or any(w.unseen for w in waits):
        return (), ()
    most = max(waits, key=lambda w: len(w.waiting))
    [everybody] = members
    if not is_majority(len(most.waiting), len(everybody)):
        return (), ()
    return tuple(sorted(everybody - set(most.waiting))), most.waiting
