from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import Confidence, FailureCause, FaultClass, Hit, RuntimeFailure, Severity
from allready.rules.runtime._seen import call_text, calls_differ, hit_of, hit_of_differing

_OF_PAIR = ("sender", "receiver", "num_sent", "num_expected", "common")


@Rule(
    code="RTM008",
    severity=Severity.ERROR,
    fault_class=FaultClass.DESYNC_ARGS,
    layer=Layer.DESYNC,
    title="A rank called the same operation with another size, type or root",
    message="[[call {number}: {who} called {odd}|the arguments of call {number} do not fit|the arguments of a call do "
    "not fit]][[, the others called {usual}]][[, {rest} called {of_rest}]]"
    "[[: in all_to_all rank {sender} sends {num_sent} elements to rank {receiver}, which expects {num_expected}]]"
    "[[, and {common} is part of every mismatch]]; the call is void on all ranks",
    remedy="make size, type, reduction, root, chunk_bytes and confirm equal on all ranks at that call (uneven last "
    "batch, a parameter that exists on some ranks only, mixed precision on some ranks only); for all_to_all exchange "
    "the sizes first",
)
def arguments_differ(runtime: RuntimeFailure) -> Iterator[Hit]:
    """
    ## What it checks
    Calls of the runtime library: one that a rank did not make in this place before is compared on all ranks before it
    begins; one with async_op=True begins at once, and is compared before its wait() returns.
    ## Why it matters
    No backend compares them: Gloo ends the process of a rank that gets more than it expects and takes less for the
    whole, NCCL hangs or goes on with wrong numbers.
    ## Check by hand
    Print shape and dtype on every rank before the call.
    ## When it is harmless
    Never. Splits of an all_to_all that are uneven and match are not reported. Where no call has a majority, no rank is
    accused. Of splits the one rank that has a part in all that does not fit is accused; not one that only receives
    there: what it expects may be what the senders were to send.
    """
    if runtime.cause is not FailureCause.ARGUMENTS or calls_differ(runtime) or not runtime.is_lone:
        return
    called = {r.rank: call_text(r.called) for r in runtime.ranks if r.called is not None}
    if not runtime.misfits:
        yield from hit_of_differing(runtime, called, **dict.fromkeys(_OF_PAIR, None))
        return
    first = runtime.misfits[0]
    common = set.intersection(*({x.sender, x.receiver} for x in runtime.misfits))
    is_proven = len(common) == 1 and any(x.sender in common for x in runtime.misfits)
    yield hit_of(
        runtime,
        [r for r in runtime.ranks if is_proven and r.rank in common],
        confidence=Confidence.LIKELY,
        sender=str(first.sender),
        receiver=str(first.receiver),
        num_sent=str(first.num_sent),
        num_expected=str(first.num_expected),
        common=f"rank {min(common)}" if len(common) == 1 else None,
        odd=None,
        usual=None,
        rest=None,
        of_rest=None,
    )
