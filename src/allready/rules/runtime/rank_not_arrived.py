from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FailureCause, FaultClass, Hit, RemedyStep, RuntimeFailure, Severity
from allready.rules.runtime._seen import hit_of, is_lone_failure, joins

SOON_S = 1.0
"""An error of the backend's that comes sooner comes from the call itself, and not from a rank that is late for it."""


@Rule(
    code="RTM005",
    severity=Severity.ERROR,
    fault_class=FaultClass.CPU_BUSY,
    layer=Layer.STALL,
    title="A rank did not enter the collective in time",
    message="{who} is alive and did not enter {call} in time; waiting: rank {waiting}",
    remedy=(
        RemedyStep(
            explanation="if {who} does something legitimate instead (evaluation, checkpoint), give that phase its own"
            " timeout: with allready.phase(...), in JAX the timeout of the barrier"
        ),
        RemedyStep(shared="stack"),
    ),
)
def rank_not_arrived(runtime: RuntimeFailure) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks that answer, and have entered fewer calls than the others when the deadline passed, or when the backend gave
    an error after the others had waited for a second.
    ## Why it matters
    It is busy with something else, blocked, or skipped the call; the others cannot tell.
    ## Check by hand
    `py-spy dump --pid PID` of the rank that is named.
    ## When it is harmless
    When it would have come a little later; then the timeout is too short.
    """
    longest_s = max((r.call.waited_s or 0.0 for r in runtime.waiting if r.call is not None), default=0.0)
    if runtime.cause is FailureCause.BACKEND and longest_s < SOON_S:
        return
    late = runtime.behind
    if late and runtime.cause is not FailureCause.ARGUMENTS and is_lone_failure(runtime) and not joins(runtime):
        yield hit_of(runtime, late)
