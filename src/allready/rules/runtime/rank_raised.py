from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, RuntimeFailure, Severity
from allready.rules.runtime._seen import hit_of, raised


@Rule(
    code="RTM002",
    severity=Severity.ERROR,
    fault_class=FaultClass.DEAD,
    layer=Layer.PROCESS_END,
    title="A rank raised an exception outside of the collective",
    message="{who} raised an exception[[: {error}]][[; {waiting} waited for {who:it/them} in {call}]]",
    remedy="fix the error of {who}; the other ranks failed because of it",
)
def rank_raised(runtime: RuntimeFailure) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks that reported an exception of their own code, or wrong arguments of a call, by `allready.recover`
    or at the end of the process.
    ## Why it matters
    Without the report the other ranks wait for it until their time-out.
    ## Check by hand
    The traceback in the log of the rank that is named.
    ## When it is harmless
    When the script catches the exception, recovers and goes on.
    """
    culprits = raised(runtime)
    if culprits:
        yield hit_of(runtime, culprits)
