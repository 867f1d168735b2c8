"""For whom the ranks of a failed collective of the runtime library had waited, and for how long."""

from msgspec import Struct

from allready.judging.majority import is_majority
from allready.model import FailureCause, RankAtFailure, RuntimeFailure

SOON_S = 1.0
"""An error of the backend's that comes sooner comes from the call itself, and not from a rank that is late for it."""
_CAUSES = {FailureCause.DEADLINE, FailureCause.VERDICT, FailureCause.BACKEND, FailureCause.FORMING}
"""Those that a rank which does not come may have."""


class Missed(Struct, frozen=True, kw_only=True):
    """A plain operation of a group of torch's that some ranks have not begun: the first of them, and who waits."""

    group: str
    number: int
    waiting: tuple[int, ...]


def elsewhere(failure: RuntimeFailure) -> tuple[RankAtFailure, ...]:
    """Ranks that answered, have begun fewer operations of a group of torch than others, and are inside none."""
    fewer = {r for one in failure.begun for r in one.counts if one.ahead([r])}
    return tuple(r for r in failure.ranks if r.rank in fewer and not r.is_inside)


def missed(failure: RuntimeFailure) -> Missed | None:
    """The plain operation in which others wait for those that are elsewhere; None: that explains nothing.

    A rank that waits in a safe call meanwhile, to which most have not come, has left the operation out.
    """
    ranks = [r.rank for r in elsewhere(failure)]
    one = next((g for g in failure.begun if {*ranks} & {*g.counts} and g.ahead(ranks)), None)
    if one is None:
        return None
    ahead, behind = one.ahead(ranks), {r.rank for r in failure.behind}
    if behind and not ({*ahead} <= behind and is_majority(len(ahead), len(one.counts))):
        return None
    return Missed(group=one.group, number=1 + min(one.counts[r] for r in ranks if r in one.counts), waiting=ahead)


def waited_s(failure: RuntimeFailure) -> float:
    """For how long ranks had waited, in a call or inside of a plain operation."""
    in_call = (r.call.waited_s or 0.0 for r in failure.waiting if r.call is not None)
    return max([*in_call, *(r.still_s for r in failure.ranks if r.is_inside)], default=0.0)


def is_overdue(failure: RuntimeFailure) -> bool:
    """Whether a deadline has passed, or ranks had waited for `SOON_S` before an error."""
    is_error = failure.cause is FailureCause.BACKEND
    return failure.cause in _CAUSES and (not is_error or (failure.is_lone and waited_s(failure) >= SOON_S))


def late(failure: RuntimeFailure) -> tuple[RankAtFailure, ...]:
    """Ranks that answered, and let others wait in vain."""
    if not is_overdue(failure):
        return ()
    return failure.behind if missed(failure) is None else elsewhere(failure)
