"""What the rules of this area read from a failure."""

from collections.abc import Iterable, Iterator, Mapping

from allready.judging.majority import majority
from allready.judging.mismatch import described
from allready.judging.overdue import missed
from allready.judging.places import Place, num_ranks, ranks_at
from allready.judging.stated import stated
from allready.model import (
    MAKINGS,
    Begun,
    CallArguments,
    Confidence,
    Culprits,
    Evidence,
    FailureCause,
    Hit,
    MemberState,
    Operation,
    Phrase,
    RankAtFailure,
    RuntimeFailure,
)


def raised(failure: RuntimeFailure) -> list[RankAtFailure]:
    """Ranks whose own code raised; not one that went to recover without an error, where another has one."""
    found = [r for r in failure.ranks if r.cause is FailureCause.RAISED]
    return [r for r in found if r.error] or found


def in_state(failure: RuntimeFailure, state: MemberState) -> list[RankAtFailure]:
    """Ranks in this state whose own code did not raise."""
    return [r for r in failure.ranks if r.state is state and r.cause is not FailureCause.RAISED]


def operations(failure: RuntimeFailure) -> dict[int, str]:
    """By rank: what was called as the call that did not fit, or else the operations in which ranks wait."""
    if failure.cause is FailureCause.ARGUMENTS:
        return {r.rank: r.called.operation for r in failure.ranks if r.called is not None}
    return {r.rank: r.call.operation for r in failure.waiting if r.call is not None}


def calls_differ(failure: RuntimeFailure) -> bool:
    """Whether these are different ones."""
    return len({*operations(failure).values()}) > 1


def call_text(called: CallArguments) -> str:
    """`all_reduce [1048576] float32 sum`, with all that has to be the same on all ranks but splits."""
    operation = Operation(
        seq=0,
        name=called.operation,
        num_elements=called.num_elements,
        dtype=called.dtype or None,
        redop=called.redop or None,
        root=called.root,
    )
    parts = "" if called.chunk_bytes is None else f" chunk_bytes={called.chunk_bytes}"
    return described(operation) + parts + (" confirm" if called.confirm and called.operation != "barrier" else "")


def hit_of_differing(failure: RuntimeFailure, called: Mapping[int, str], **more: str | None) -> Iterator[Hit]:
    """A hit where ranks called something else than most; where that is nothing, one that shows all and accuses none."""
    usual = majority(called, failure.group or (r.rank for r in failure.ranks))
    if len({*called.values()}) < 2:
        return
    odd = usual.odd if usual is not None else ()
    first = next(iter(called.values()))
    shown = odd or tuple(rank for rank, call in called.items() if call == first)
    rest = tuple(rank for rank in called if rank not in shown)
    values = {
        "who": _named(failure, shown),
        "odd": _each(called, shown),
        "usual": None if usual is None else usual.value,
        "rest": None if odd else _named(failure, rest),
        "of_rest": None if odd else _each(called, rest),
    }
    confidence = Confidence.CERTAIN if odd else Confidence.LIKELY
    yield hit_of(failure, [r for r in failure.ranks if r.rank in odd], confidence=confidence, **values, **more)


def _named(failure: RuntimeFailure, ranks: Iterable[int]) -> str | None:
    return ranks_at(ranks, {r.rank: Place(host=r.process.host, pid=r.process.pid) for r in failure.ranks})


def _each(called: Mapping[int, str], ranks: Iterable[int]) -> str:
    """Each different one once."""
    return "; ".join(dict.fromkeys(called[r] for r in ranks))


def joins(failure: RuntimeFailure) -> bool:
    """Whether nothing failed: the members were interrupted to let a rank in."""
    return failure.cause is FailureCause.JOINS


def hit_of(
    failure: RuntimeFailure,
    culprits: Iterable[RankAtFailure],
    *,
    confidence: Confidence = Confidence.CERTAIN,
    **values: str | Phrase | None,
) -> Hit:
    """With what every rule of this area says.

    Without culprits any rank's error is reported.
    """
    ranks = tuple(r.rank for r in culprits)
    last = failure.furthest if failure.number is None else failure.number
    inside, plain = failure.waiting, missed(failure)
    waiting = {r.rank for r in inside} - {*ranks}
    operation = next((r.call.operation for r in inside if r.call is not None and r.call.operation), "")
    errors = [r.error for r in failure.ranks if (r.rank in ranks or not ranks) and r.error]
    return Hit(
        culprits=Culprits(ranks=ranks),
        confidence=confidence,
        fault_time=failure.time or None,
        values={
            "who": _named(failure, ranks),
            "number": str(last),
            "call": f"{operation} #{last}" if operation else None,
            "waiting": num_ranks(waiting),
            "error": errors[0] if errors else None,
            **values,
        },
        evidence=tuple(_text(r, None if plain is None else plain.begun) for r in failure.ranks),
    )


def _text(rank: RankAtFailure, group: Begun | None) -> Evidence:
    call = rank.call
    begun = None if group is None else group.counts.get(rank.rank)
    is_making = group is not None and group.group == MAKINGS
    return stated(
        f"rank {rank.rank}",
        "{state}[[; entered {entered}, completed {completed}]][[; {seconds} s in {call}]][[; began {begun} "
        "operations of group {group}, none for {still} s]][[; began to make {making} groups]][[; called {called}]]"
        "[[; {error}]]",
        state=rank.state.value,
        entered=None if call is None else call.entered,
        completed=None if call is None else call.completed,
        seconds=None if call is None or call.waited_s is None else f"{call.waited_s:.3f}",
        call=None if call is None else call.operation,
        begun=None if is_making else begun,
        group=None if is_making or begun is None or group is None else group.group,
        still=None if is_making or begun is None else f"{rank.still_s:.3f}",
        making=begun if is_making else None,
        called=None if rank.called is None else call_text(rank.called),
        error=rank.error or None,
    )
