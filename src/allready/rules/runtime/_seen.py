"""What the rules of this area read from a failure."""

from collections.abc import Iterable

from allready.judging.stated import stated
from allready.model import Confidence, Culprits, Evidence, FailureCause, Hit, MemberState, RankAtFailure, RuntimeFailure


def raised(failure: RuntimeFailure) -> list[RankAtFailure]:
    """Ranks whose own code raised."""
    return [r for r in failure.ranks if r.cause is FailureCause.RAISED]


def in_state(failure: RuntimeFailure, state: MemberState) -> list[RankAtFailure]:
    """Ranks in this state whose own code did not raise."""
    return [r for r in failure.ranks if r.state is state and r.cause is not FailureCause.RAISED]


def calls_differ(failure: RuntimeFailure) -> bool:
    """Whether the ranks that wait in the last call wait in different operations."""
    return len({r.call.operation for r in failure.waiting if r.call is not None}) > 1


def is_lone_failure(failure: RuntimeFailure) -> bool:
    """Whether no rank died, left, raised or is silent."""
    return all(r.state is MemberState.ANSWERED and r.cause is not FailureCause.RAISED for r in failure.ranks)


def joins(failure: RuntimeFailure) -> bool:
    """Whether nothing failed: the members were interrupted to let a rank in."""
    return failure.cause is FailureCause.JOINS


def hit_of(
    failure: RuntimeFailure,
    culprits: Iterable[RankAtFailure],
    *,
    confidence: Confidence = Confidence.CERTAIN,
    operation: str = "",
    **values: str,
) -> Hit:
    """With what every rule of this area says.

    `operation`: the one to name, by default that of the first who waits.  Without culprits any rank's error is told.
    """
    ranks = tuple(r.rank for r in culprits)
    last = failure.furthest
    inside = failure.waiting
    operation = operation or next((r.call.operation for r in inside if r.call is not None and r.call.operation), "")
    errors = [r.error for r in failure.ranks if (r.rank in ranks or not ranks) and r.error]
    return Hit(
        culprits=Culprits(ranks=ranks),
        confidence=confidence,
        fault_time=failure.time or None,
        values={
            "who": ", ".join(f"rank {r}" for r in ranks),
            "call": f"{operation} #{last}" if operation else "?",
            "waiting": ", ".join(str(r.rank) for r in inside if r.rank not in ranks) or "?",
            "error": errors[0] if errors else "?",
            **values,
        },
        evidence=tuple(_text(r) for r in failure.ranks),
    )


def _text(rank: RankAtFailure) -> Evidence:
    call = rank.call
    return stated(
        f"rank {rank.rank}",
        "{state}[[; entered {entered}, completed {completed}]][[; {seconds} s in {call}]][[; {error}]]",
        state=rank.state.value,
        entered=None if call is None else call.entered,
        completed=None if call is None else call.completed,
        seconds=None if call is None or call.waited_s is None else f"{call.waited_s:.3f}",
        call=None if call is None else call.operation,
        error=rank.error or None,
    )
