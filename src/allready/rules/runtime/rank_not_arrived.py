from collections.abc import Iterator

from allready.judging.overdue import late, missed
from allready.judging.places import num_ranks
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.model import Confidence, FaultClass, Hit, RemedyStep, RuntimeFailure, Severity
from allready.rules.runtime._seen import hit_of


@Rule(
    code="RTM005",
    severity=Severity.ERROR,
    fault_class=FaultClass.CPU_BUSY,
    layer=Layer.STALL,
    title="A rank did not enter the collective in time",
    message="{who} {who:is/are} alive and did not enter [[{call}|the call]] in time[[; waiting: {waiting}]]",
    remedy=(
        RemedyStep(
            explanation="if {who} {who:does/do} something legitimate instead (evaluation, checkpoint), give the "
            "call in which the others wait a timeout of its own: with allready.phase(...) around it on all ranks, in "
            "JAX the timeout of the barrier"
        ),
        RemedyStep(shared="stack"),
    ),
)
def rank_not_arrived(runtime: RuntimeFailure) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks that answer, and have entered fewer calls than the others when the deadline passed, or when the backend gave
    an error after the others had waited for a second.  Of plain collectives (DDP's among them), which the library does
    not see: ranks that have begun fewer operations of a group, by torch's own count, and are inside of none.  Sends and
    receives count too, so that is likely and not certain.
    ## Why it matters
    It is busy with something else, blocked, or skipped the call; the others cannot tell.
    ## Check by hand
    `py-spy dump --pid PID` of the rank that is named.
    ## When it is harmless
    When it would have come a little later; then the timeout is too short.
    """
    ranks, plain = late(runtime), missed(runtime)
    if not ranks or not runtime.is_lone:
        return
    if plain is None:
        yield hit_of(runtime, ranks)
        return
    yield hit_of(
        runtime,
        ranks,
        confidence=Confidence.LIKELY,
        call=said("plain collective #{number} of group {group}", number=plain.number, group=plain.begun.group),
        waiting=num_ranks(plain.waiting),
    )
