from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stall import StallKind
from allready.model import FaultClass, Hit, RemedyStep, Severity
from allready.rules.live._hits import stall_hits


@Rule(
    code="LIV001",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.STALL,
    applies=Applies.LIVE,
    title="A rank's process is stopped",
    message="{who} {who:is/are} stopped[[ ({what})]], since {since}[[; {waiting} waited {waited} s for "
    "{who:it/them} in {operation}|; {waiting} waited {waited} s for {who:it/them}|; {waiting} waited for "
    "{who:it/them}]]",
    remedy=(
        RemedyStep(
            explanation="if a debugger, a freezer or Ctrl-Z stopped {who:it/them}, end that first (a stopped process "
            "keeps its connections, so no timeout of the network ever tells of it)"
        ),
        RemedyStep(shared="let_go_on"),
    ),
)
def rank_stopped(case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    The state of every rank's process as the kernel gives it: T (stopped by a signal or a freezer) or t (held by a
    tracer), for longer than a pause by pulses would last, while other processes of the job run.
    ## Why it matters
    A stopped process keeps its sockets open and answers nothing: all others wait for it, and no log names it.
    ## Check by hand
    `grep State /proc/PID/status` on the node; `T (stopped)`.
    ## When it is harmless
    When the process is being debugged, and the job is known to wait.
    """
    yield from stall_hits(case, StallKind.STOPPED, StallKind.TRACED)
