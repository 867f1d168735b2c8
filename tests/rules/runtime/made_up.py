"""Failures of the runtime library, as data."""

from typing import Any

from allready.model import CallPosition, FailureCause, Fleet, MemberState, RankAtFailure, RuntimeFailure
from tests.fleets import fleet

CODES = ["RTM001", "RTM002", "RTM003", "RTM004", "RTM005", "RTM006", "RTM007", "RTM008", "RTM009"]


def rank(
    number: int, entered: int = 7, completed: int = 6, operation: str = "all_reduce", **more: Any
) -> RankAtFailure:
    """One that answered, by default inside its 7th call."""
    waited_s = 2.0 if entered > completed else None
    call = CallPosition(entered=entered, completed=completed, operation=operation, waited_s=waited_s)
    return RankAtFailure(**{"rank": number, "state": MemberState.ANSWERED, "call": call, **more})


def gone(number: int, state: MemberState, **more: Any) -> RankAtFailure:
    return RankAtFailure(rank=number, state=state, **more)


def failed(*ranks: RankAtFailure, cause: FailureCause = FailureCause.DEADLINE, **more: Any) -> Fleet:
    """A job of which nothing else is known."""
    failure = RuntimeFailure(epoch=1, cause=cause, reporter=0, ranks=ranks, first_void=7, **more)
    return fleet(2, runtime=failure)
