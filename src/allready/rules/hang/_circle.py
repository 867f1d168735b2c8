"""Ranks that wait for each other in a circle of groups, and whether one of them is the odd one."""

from msgspec import Struct

from allready.judging.analysis import Analysis
from allready.judging.hang import Decision, decide
from allready.judging.live_status import waited_s
from allready.judging.majority import is_majority
from allready.judging.waits import Wait, WaitSnapshot
from allready.model import Live

SURE_S = 1.2


class Circle(Struct, frozen=True, kw_only=True):
    """`odd`: the few that took the groups in another order than most, () where none is odd.

    `stood_s`: for how long the last of them to wait has waited, None without a running job.
    """

    decision: Decision
    picture: WaitSnapshot
    ranks: tuple[int, ...]
    odd: tuple[int, ...]
    others: tuple[int, ...]
    stood_s: float | None

    def chain(self) -> str:
        """`0 -> 3 (pair: all_reduce #7), 3 -> 0 (...)`."""
        names = []
        for rank, following in zip(self.ranks, (*self.ranks[1:], self.ranks[0]), strict=True):
            wait = next(
                (w for w in self.picture.waits if rank in w.waiting and following in {*w.behind, *w.unseen}), None
            )
            if wait is not None:
                names.append(f"{rank} -> {following} ({told(wait)})")
        return ", ".join(names)


def told(wait: Wait) -> str:
    """Group and operation."""
    return f"{wait.label or wait.group}: {wait.operation.name} #{wait.operation.seq}"


def circle_of(case: Analysis) -> Circle | None:
    """The circle, if that is what explains the hang; of a running job only when all of it has stood still."""
    live = case.live
    decision = case.of(decide)
    if decision.kind != "cycle" or decision.picture is None:
        return None
    stood_s = _stood_s(live, decision.picture, decision.ranks) if live is not None else None
    if stood_s is not None and stood_s < SURE_S:
        return None  # words about ranks that move are never of one moment
    odd, others = _odd(decision.picture, decision.ranks)
    return Circle(
        decision=decision, picture=decision.picture, ranks=decision.ranks, odd=odd, others=others, stood_s=stood_s
    )


def _odd(picture: WaitSnapshot, ranks: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where the same ranks meet in several groups: those that wait in another one than most of them, and those most."""
    waits = [w for w in picture.waits if set(w.waiting) & set(ranks)]
    members = {frozenset({*w.waiting, *w.behind, *w.unseen}) for w in waits}
    if len(members) != 1 or any(w.unseen for w in waits):
        return (), ()
    most = max(waits, key=lambda w: len(w.waiting))
    [everybody] = members
    if not is_majority(len(most.waiting), len(everybody)):
        return (), ()
    return tuple(sorted(everybody - set(most.waiting))), most.waiting


def _stood_s(live: Live, picture: WaitSnapshot, ranks: tuple[int, ...]) -> float:
    waits = [w for w in picture.waits if set(w.waiting) & set(ranks)]
    return min((waited_s(live, set(w.waiting) & set(ranks), w.group) for w in waits), default=0.0)
