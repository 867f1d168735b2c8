from collections.abc import Iterator

from msgspec.structs import replace

from allready.judging.analysis import Analysis
from allready.judging.hang import blame_hang
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stall import StallKind
from allready.judging.stated import said
from allready.model import PROCESSES, FaultClass, Hit, RemedyStep, Severity
from allready.rules.live._hits import stall_hits

HELD = {
    "data_loading": "a queue that none of its threads serves",
    "file_lock": "another rank, which waits for the lock[[ of the file {what}]] that {holder} holds,",
}
"""What it waits for, where that is no lock of its own."""


@Rule(
    code="LIV003",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.STALL,
    applies=Applies.LIVE,
    title="A rank waits for a lock that is never released",
    message="{who} {who:has/have} waited for [[{held}|a lock]][[ at {site}]] since {since}, and none of "
    "{who:its/their} threads runs[[; {waiting} waited {waited} s for {who:it/them} in {operation}|; "
    "{waiting} waited {waited} s for {who:it/them}|; {waiting} waited for {who:it/them}]]",
    remedy=(
        RemedyStep(
            explanation="see both stacks in the evidence: threads that take two locks must take them in one "
            "order, a lock must not be taken twice by one thread (threading.RLock), and no thread "
            "may hold it across a collective; of a thread that should have let it go on and is not in the evidence, "
            "look in the rank's output for the exception that ended it"
        ),
        RemedyStep(
            explanation="read the stacks again", each=PROCESSES, where="{on}", command="py-spy dump --pid {pid}"
        ),
    ),
)
def rank_locked(case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    That the main thread of a rank that others wait for stands at one line in a lock, a condition, a join or, where the
    rank has no children, a queue (queue.Queue), which only its own threads serve; that the process and its children use
    no processor time; and that no other thread of it does anything that would end by itself (reading, downloading,
    sleeping, computing), runs an event loop or a timer, or waits with a limit.  Or that it holds a file lock for which
    another rank of its node waits (/proc/locks), while it waits in a collective itself, and has no child and no such
    thread that may release it: it keeps the lock across the collective.
    ## Why it matters
    A deadlock inside of one process looks from outside like a network that hangs: all others wait in a collective.
    ## Check by hand
    `py-spy dump --pid PID` twice, some seconds apart.
    ## When it is harmless
    When another process will release the lock: a file lock that no rank of the job keeps so is reported as a wait
    (LIV006).
    """
    kinds = {c.doing for c in case.of(blame_hang).causes if c.kind is StallKind.LOCK}
    for hit in stall_hits(case, StallKind.LOCK):
        form = HELD.get(next(iter(kinds)), "") if len(kinds) == 1 else ""
        what = hit.values["what"]
        holder = f"rank {','.join(map(str, hit.culprits.ranks))}"
        held = said(form, what=what, holder=holder) if form else None
        yield replace(hit, values={**hit.values, "held": held})
