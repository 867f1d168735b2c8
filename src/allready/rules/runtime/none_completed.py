from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import Confidence, FailureCause, FaultClass, Hit, RuntimeFailure, Severity
from allready.rules.runtime._seen import calls_differ, hit_of, is_lone_failure


@Rule(
    code="RTM006",
    severity=Severity.ERROR,
    fault_class=FaultClass.NET_BROKEN,
    layer=Layer.TRANSPORT,
    title="All ranks entered the collective, and it did not complete",
    message="all ranks entered[[ {call}]], and it did not complete[[: {error}]]",
    remedy="check the paths between the nodes (allready check)",
)
def none_completed(runtime: RuntimeFailure) -> Iterator[Hit]:
    """
    ## What it checks
    A call of the runtime library's that every rank entered and that ended by its deadline or by an error of the
    backend.  Which ranks had come to a plain collective of torch's is not known, so it gives no finding about one.
    ## Why it matters
    No rank is late, and all call the same, so the data does not flow on a path between nodes.
    ## Check by hand
    `allready check` on the same nodes.
    ## When it is harmless
    When the deadline was shorter than the transfer takes.
    """
    is_call = runtime.cause in {
        FailureCause.DEADLINE, FailureCause.VERDICT, FailureCause.BACKEND, FailureCause.FORMING,
    }  # fmt: skip
    is_one_call = not runtime.behind and not calls_differ(runtime)
    if is_call and runtime.furthest and runtime.waiting and is_lone_failure(runtime) and is_one_call:
        yield hit_of(runtime, (), confidence=Confidence.POSSIBLE)
