from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import Confidence, FaultClass, Hit, MemberState, RemedyStep, RuntimeFailure, Severity
from allready.rules.runtime._seen import hit_of, in_state


@Rule(
    code="RTM003",
    severity=Severity.ERROR,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.STALL,
    title="A rank sends no heartbeat",
    message="{who} {who:sends/send} no heartbeat: stopped, without CPU time, or cut off from the network"
    "[[; {waiting} waited for {who:it/them} in {call}]]",
    remedy=(
        RemedyStep(explanation="check that the node of {who} answers at all"),
        RemedyStep(shared="process_state"),
        RemedyStep(shared="let_go_on"),
    ),
)
def rank_silent(runtime: RuntimeFailure) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks that are connected and from which nothing came, neither heartbeat nor answer, for
    `answer_within`.  The heartbeat comes from a thread of its own, so a rank that is only busy gives it.
    ## Why it matters
    A stopped process keeps its connections open, so no error shows it; the other ranks wait.
    ## Check by hand
    `ps -o pid,stat,wchan:20,cmd -C python` on its node.
    ## When it is harmless
    When a library holds the interpreter's lock for longer than `answer_within`; then raise it.
    """
    silent = in_state(runtime, MemberState.SILENT)
    if silent:
        yield hit_of(runtime, silent, confidence=Confidence.LIKELY)
