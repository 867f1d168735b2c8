from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stall import StallKind
from allready.model import PROCESSES, FaultClass, Hit, RemedyStep, Severity
from allready.rules.live._hits import stall_hits


@Rule(
    code="LIV005",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.STALL,
    applies=Applies.LIVE,
    title="A rank waits for a child process that is stopped or dead",
    message="{who} {who:waits/wait}[[ at {site}]] for {who:its/their} child process[[ {what}]][[; {waiting} waited "
    "{waited} s for {who:it/them} in {operation}|; {waiting} waited {waited} s for {who:it/them}|; {waiting} waited "
    "for {who:it/them}]]",
    remedy=(
        RemedyStep(
            explanation="look at that child: if it was stopped, kill -CONT it; if it was killed, see the "
            "kernel log and the size of /dev/shm",
            each=PROCESSES,
            where="{on}",
            command="ps --ppid {pid} -o pid,stat,wchan,args; dmesg -T | grep -i -E 'killed process|oom'; "
            "df -h /dev/shm",
        ),
        RemedyStep(explanation="DataLoader(timeout=120) makes a loader raise instead of waiting for ever"),
    ),
)
def worker_stopped(case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    The states of the child processes of a rank that others wait for: a DataLoader worker that is stopped or has
    ended without being noticed, while the main thread waits for data.
    ## Why it matters
    The rank itself looks idle and healthy; the process that should give it data does not run.
    ## Check by hand
    `ps --ppid PID -o pid,stat,wchan,args`.
    ## When it is harmless
    When the child was stopped on purpose and will go on.
    """
    yield from stall_hits(case, StallKind.CHILD)
