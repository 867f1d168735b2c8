"""LIV002."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.live_waits import decide
from allready.judging.registry import Rule
from allready.model import FaultClass, Hit, Live, RemedyStep, Severity, World, clock_time
from allready.rules.live._values import common, culprits, fill, reasons_of, told, visible_s


@Rule(
    code="LIV002",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.CPU_STUCK,
    since="0.1",
    layer=Layer.STALL,
    title="A rank waits in the kernel for storage that does not answer",
    message="{who} has waited for storage since {since}: {what}, at {site}; waited for by {waiting} in {operation}",
    remedy=(
        RemedyStep(
            explanation="look at the file server or the disk behind that path, and at the kernel log",
            where="node {on}",
            command="timeout 5 ls -l /proc/{pid}/fd; dmesg -T | grep -i -E 'nfs|lustre|fuse|blocked for "
            "more'; nfsstat -m",
        ),
        RemedyStep(
            explanation="the process cannot be killed before the server answers: mount with a timeout, or keep "
            "data and checkpoints on storage that answers",
        ),
    ),
)
def rank_in_storage(case: Analysis, live: Live, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    That the main thread of a rank that others wait for has been in one system call on a file, in the kernel (state D,
    or in a wait of a network file system), without using any processor time.
    ## Why it matters
    A file server that does not answer stops one rank, and with it all others, without a line in any log.
    ## Check by hand
    `cat /proc/PID/wchan /proc/PID/syscall`, `ls -l /proc/PID/fd` on the node.
    ## When it is harmless
    When a large checkpoint is being flushed to a local disk: for that it waits much longer before it speaks.
    """
    decision = case.of(decide)
    reasons = reasons_of(decision, {"io"})
    if not reasons:
        return
    values = common(live, world, decision, reasons)
    yield Hit(
        culprits=culprits(reasons),
        values=fill(values, "who", "what", "since", "site", "waiting", "operation"),
        confidence=min((r.confidence for r in reasons), key=lambda c: c.weight),
        evidence=told(live, decision, reasons),
        fault_time=clock_time(visible_s(decision, reasons)),
    )
