from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stall import StallKind
from allready.model import PROCESSES, FaultClass, Hit, RemedyStep, Severity
from allready.rules.live._hits import stall_hits


@Rule(
    code="LIV004",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.STALL,
    applies=Applies.LIVE,
    title="Native code holds the GIL",
    message="{who} {who:has/have} run no Python since {since}: native code[[ called at {site}]] holds the GIL[[ "
    "({what})]][[; {waiting} waited {waited} s for {who:it/them} in {operation}|; {waiting} waited {waited} s for "
    "{who:it/them}|; {waiting} waited for {who:it/them}]]",
    remedy=(
        RemedyStep(
            explanation="the call[[ at {site}]] goes into native code that keeps the GIL: release it there "
            "(Py_BEGIN_ALLOW_THREADS, ctypes.CDLL instead of ctypes.PyDLL, py::gil_scoped_release)"
        ),
        RemedyStep(
            explanation="read the native frames",
            each=PROCESSES,
            where="{on}",
            command="py-spy dump --native --pid {pid}",
        ),
    ),
)
def gil_held(case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    A thread of our own in the rank, which only writes the time, did not get the GIL, although the process is not
    stopped; and the process waits in a system call without using its processor.
    ## Why it matters
    While native code holds the GIL no thread of the process runs Python: no signal handler, no watchdog of Python.
    ## Check by hand
    `py-spy dump --native --pid PID`: the thread that is marked as holding the GIL.
    ## When it is harmless
    When the call is known to return.  One that computes with the GIL is reported as waiting only.
    """
    yield from stall_hits(case, StallKind.GIL)
