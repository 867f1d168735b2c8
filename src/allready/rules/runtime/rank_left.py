from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, MemberState, RuntimeFailure, Severity
from allready.rules.runtime._seen import hit_of, in_state


@Rule(
    code="RTM004",
    severity=Severity.ERROR,
    fault_class=FaultClass.DESYNC_FLOW,
    layer=Layer.DESYNC,
    title="A rank left the job while others still called collectives",
    message="{who} left the job while others still called collectives[[ ({call})]][[; waiting: {waiting}]]",
    remedy="let all ranks make the same number of collective calls before the end; compare the lengths of their "
    "data sets and loops",
)
def rank_left(runtime: RuntimeFailure) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks that ended cleanly while another rank still waits for them.
    ## Why it matters
    A rank that has fewer batches than the others ends earlier; the others wait for it until their time-out.
    ## Check by hand
    Print the number of steps on every rank.
    ## When it is harmless
    Never.
    """
    left = in_state(runtime, MemberState.LEFT)
    if left:
        yield hit_of(runtime, left)
