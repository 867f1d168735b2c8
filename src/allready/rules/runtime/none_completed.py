from collections.abc import Iterator

from allready.judging.overdue import late
from allready.judging.registry import Layer, Rule
from allready.model import Confidence, FailureCause, FaultClass, Hit, RuntimeFailure, Severity
from allready.rules.runtime._seen import calls_differ, hit_of


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
    is_one_call = not runtime.behind and not late(runtime) and not calls_differ(runtime)
    if is_call and runtime.furthest and runtime.waiting and runtime.is_lone and is_one_call:
        yield hit_of(runtime, (), confidence=Confidence.POSSIBLE)
