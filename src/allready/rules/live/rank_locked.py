from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stall import StallKind
from allready.model import PROCESSES, FaultClass, Hit, RemedyStep, Severity
from allready.rules.live._hits import stall_hits


@Rule(
    code="LIV003",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.STALL,
    applies=Applies.LIVE,
    title="A rank waits for a lock that is never released",
    message="{who} {who:has/have} waited for a lock[[ at {site}]] since {since}, and none of {who:its/their} threads "
    "runs[[; {waiting} waited {waited} s for {who:it/them} in {operation}|; {waiting} waited {waited} s for "
    "{who:it/them}|; {waiting} waited for {who:it/them}]]",
    remedy=(
        RemedyStep(
            explanation="see both stacks in the evidence: threads that take two locks must take them in one "
            "order, a lock must not be taken twice by one thread (threading.RLock), and no thread "
            "may hold it across a collective"
        ),
        RemedyStep(
            explanation="read the stacks again", each=PROCESSES, where="{on}", command="py-spy dump --pid {pid}"
        ),
    ),
)
def rank_locked(case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    That the main thread of a rank that others wait for stands at one line in a lock, a condition or a join; that the
    process and its children use no processor time; and that no other thread of it does anything that would end by
    itself (reading, downloading, sleeping, computing).
    ## Why it matters
    A deadlock inside of one process looks from outside like a network that hangs: all others wait in a collective.
    ## Check by hand
    `py-spy dump --pid PID` twice, some seconds apart.
    ## When it is harmless
    When another process will release the lock, for example a file lock of a node that prepares data.
    """
    yield from stall_hits(case, StallKind.LOCK)
