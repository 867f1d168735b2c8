from collections.abc import Iterator

from allready.judging.overdue import late
from allready.judging.registry import Layer, Rule
from allready.model import Confidence, FailureCause, FaultClass, Hit, RuntimeFailure, Severity
from allready.rules.runtime._seen import call_text, hit_of, hit_of_differing, joins, operations
from allready.rules.runtime._seen import calls_differ as differ

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
    if runtime.cause is not FailureCause.ARGUMENTS or differ(runtime) or not runtime.is_lone:
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


@Rule(
    code="RTM007",
    severity=Severity.ERROR,
    fault_class=FaultClass.DESYNC_FLOW,
    layer=Layer.DESYNC,
    title="A rank called a different operation than the others",
    message="call {number}: {who} called {odd}[[, the others called {usual}]][[, {rest} called {of_rest}]]",
    remedy="find what was left out or done twice before that call[[ by {who}]]: a condition on the rank, a data set of "
    "another length; all ranks must make the same calls in the same order",
)
def calls_differ(runtime: RuntimeFailure) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks whose call of the same number is another operation than that of most ranks.  Where no operation has a
    majority, the finding shows all and accuses no rank.
    ## Why it matters
    The calls can never meet.  The runtime library compares a call that is not the expected one before it begins.
    ## Check by hand
    `py-spy dump --pid PID` of the rank that is named and of another one.
    ## When it is harmless
    Never.
    """
    if differ(runtime) and runtime.is_lone and not joins(runtime):
        yield from hit_of_differing(runtime, operations(runtime))


@Rule(
    code="RTM006",
    severity=Severity.ERROR,
    fault_class=FaultClass.NET_BROKEN,
    layer=Layer.TRANSPORT,
    title="All ranks entered the collective, and it did not complete",
    message="all ranks entered [[{call}|the call]], and it did not complete[[: {error}]]",
    remedy="check the paths between the nodes (allready check), and that plain collectives beside this call come in "
    "the same order on all ranks",
)
def none_completed(runtime: RuntimeFailure) -> Iterator[Hit]:
    """
    ## What it checks
    A call of the runtime library's that every rank entered and that ended by its deadline or by an error of the
    backend.  Which ranks had come to a plain collective of torch's is not known, so it gives no finding about one.
    ## Why it matters
    No rank is late, and none says that it calls another operation.  So the data did not flow in time; why is not known
    here: a path between nodes, a GPU or work that its stream had before, plain collectives that ranks called in another
    order, or a process that is stalled.
    ## Check by hand
    `allready check` on the same nodes; the stacks of all ranks (`allready run` has them) where they are one node, or
    where plain collectives run beside.
    ## When it is harmless
    When the deadline was shorter than the transfer takes.
    """
    is_call = runtime.cause in {
        FailureCause.DEADLINE, FailureCause.VERDICT, FailureCause.BACKEND, FailureCause.FORMING,
    }  # fmt: skip
    is_one_call = not runtime.behind and not late(runtime) and not differ(runtime)
    if is_call and runtime.furthest and runtime.waiting and runtime.is_lone and is_one_call:
        yield hit_of(runtime, (), confidence=Confidence.POSSIBLE)
