from collections.abc import Iterator

from allready.judging.majority import majority
from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, RuntimeFailure, Severity
from allready.rules.runtime._seen import hit_of, is_lone_failure, joins


@Rule(
    code="RTM007",
    severity=Severity.ERROR,
    fault_class=FaultClass.DESYNC_FLOW,
    layer=Layer.DESYNC,
    title="A rank called a different operation than the others",
    message="{who} called {other}, the others {call}: the ranks wait for each other",
    remedy="find what {who} left out or did twice before {other}: a condition on the rank, a data set of another "
    "length; all ranks must make the same calls in the same order",
)
def calls_differ(runtime: RuntimeFailure) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks that wait in the same call by its number, which is another operation on them than on most ranks.
    ## Why it matters
    The calls can never meet: every rank waits for the others until the deadline.
    ## Check by hand
    `py-spy dump --pid PID` of the rank that is named and of another one.
    ## When it is harmless
    Never.
    """
    inside = {r.rank: r for r in runtime.waiting}
    operations = {number: r.call.operation for number, r in inside.items() if r.call is not None}
    usual = majority(operations, (r.rank for r in runtime.ranks))
    if usual is not None and usual.odd and is_lone_failure(runtime) and not joins(runtime):
        yield hit_of(
            runtime,
            [inside[number] for number in usual.odd],
            operation=usual.value,
            other=", ".join(sorted({operations[number] for number in usual.odd})),
        )
