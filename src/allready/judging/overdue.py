"""For whom the ranks of a failed collective of the runtime library had waited, and for how long."""

from msgspec import Struct

from allready.judging.majority import is_majority
from allready.model import MAKINGS, Begun, FailureCause, RankAtFailure, RuntimeFailure

SOON_S = 1.0
"""An error of the backend's that comes sooner comes from the call itself, and not from a rank that is late for it."""
_CAUSES = {FailureCause.DEADLINE, FailureCause.VERDICT, FailureCause.BACKEND, FailureCause.FORMING}
"""Those that a rank which does not come may have."""


class Missed(Struct, frozen=True, kw_only=True):
    """A plain operation of a group of torch's, or the making of one, that some ranks have not begun: the first of them,
    and who waits."""

    begun: Begun
    number: int
    waiting: tuple[int, ...]


def _waits(rank: RankAtFailure) -> bool:
    """Whether it is inside of an operation of torch's, or was until that failed: its own, or one of a safe call."""
    return rank.is_inside or rank.cause in {FailureCause.BACKEND, FailureCause.DEADLINE}


def _is_elsewhere(rank: RankAtFailure) -> bool:
    """Whether it is in no operation of torch's, but may be in a safe call, also in one whose deadline has passed."""
    is_in_call = rank.call is not None and rank.call.waited_s is not None
    return not rank.is_inside and (is_in_call or not _waits(rank))


def _late_in(failure: RuntimeFailure, one: Begun) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ranks of a group that have begun fewer operations than others and are inside none, and who waits for them.

    Others have waited for `SOON_S`, or in an operation whose deadline has passed for one of them: who has only just
    begun an operation says nothing of those that come next.
    """
    ranks = {r.rank: r for r in failure.ranks if r.rank in one.counts}
    over = {one.counts[r.rank] for r in ranks.values() if r.cause is FailureCause.DEADLINE}
    inside = [r for r in ranks.values() if _waits(r) and r.is_making == (one.group == MAKINGS)]
    waiting = [r.rank for r in inside if (r.still_s >= SOON_S or one.counts[r.rank] in over)]
    late = tuple(n for n, r in ranks.items() if _is_elsewhere(r) and {*one.ahead([n])} & {*waiting})
    return late, tuple(r for r in (one.ahead(late) if late else ()) if r in waiting)


def elsewhere(failure: RuntimeFailure) -> tuple[RankAtFailure, ...]:
    """Ranks that answered and are late for a plain operation in any group."""
    late = {r for one in failure.begun for r in _late_in(failure, one)[0]}
    return tuple(r for r in failure.ranks if r.rank in late)


def missed(failure: RuntimeFailure) -> Missed | None:
    """The plain operation in which others wait for those that are elsewhere; None: that explains nothing.

    A rank that waits in a safe call meanwhile, to which most have not come, has left the operation out.
    """
    found = ((one, *_late_in(failure, one)) for one in failure.begun)
    one, late, waiting = next((f for f in found if f[1] and f[2]), (None, (), ()))
    if one is None:
        return None
    behind = {r.rank for r in failure.behind}
    if behind and not ({*waiting} <= behind and is_majority(len(waiting), len(one.counts))):
        return None
    return Missed(begun=one, number=1 + min(one.counts[r] for r in late), waiting=waiting)


def waited_s(failure: RuntimeFailure) -> float:
    """For how long ranks had waited, in a call or inside of a plain operation."""
    in_call = (r.call.waited_s or 0.0 for r in failure.waiting if r.call is not None)
    return max([*in_call, *(r.still_s for r in failure.ranks if _waits(r))], default=0.0)


def is_overdue(failure: RuntimeFailure) -> bool:
    """Whether a deadline has passed, or ranks had waited for `SOON_S` before an error."""
    is_error = failure.cause is FailureCause.BACKEND
    return failure.cause in _CAUSES and (not is_error or (failure.is_lone and waited_s(failure) >= SOON_S))


def late(failure: RuntimeFailure) -> tuple[RankAtFailure, ...]:
    """Ranks that answered, and let others wait in vain."""
    if not is_overdue(failure):
        return ()
    return failure.behind if missed(failure) is None else elsewhere(failure)
