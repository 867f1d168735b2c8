from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, RuntimeFailure, Severity
from allready.rules.runtime._seen import calls_differ as differ
from allready.rules.runtime._seen import hit_of_differing, joins, operations


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
