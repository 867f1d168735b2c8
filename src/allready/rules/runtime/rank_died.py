from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, MemberState, RemedyStep, RuntimeFailure, Severity
from allready.rules.runtime._seen import hit_of, in_state


@Rule(
    code="RTM001",
    severity=Severity.ERROR,
    fault_class=FaultClass.DEAD,
    layer=Layer.PROCESS_END,
    title="A rank's process ended during collectives",
    message="{who} ended without leaving the job[[; {waiting} waited for {who:it/them} in {call}]]",
    remedy=(
        RemedyStep(
            explanation="read the end of the log of {who}: a crash, an exit, a signal (SIGKILL is mostly the kernel's"
            " OOM killer); the other ranks can go on by allready.recover"
        ),
        RemedyStep(shared="oom_kills"),
    ),
)
def rank_died(runtime: RuntimeFailure) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks whose connection to the job's hub broke without a goodbye.  The kernel closes it the moment the process ends.
    ## Why it matters
    The other ranks wait in the collective until their time-out; only neighbors of the dead rank get an error earlier.
    ## Check by hand
    `dmesg | grep -i kill` on its node; the exit code in the launcher's log.
    ## When it is harmless
    When the rank was ended on purpose and the others go on without it.
    """
    dead = in_state(runtime, MemberState.DIED)
    if dead:
        yield hit_of(runtime, dead)
