from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stall import StallKind
from allready.model import PROCESSES, FaultClass, Hit, RemedyStep, Severity
from allready.rules.live._hits import stall_hits


@Rule(
    code="LIV002",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.STALL,
    applies=Applies.LIVE,
    title="A rank is blocked in the kernel on storage that does not answer",
    message="{who} {who:has/have} waited for storage since {since}[[: {what}]][[, at {site}]][[; {waiting} waited "
    "{waited} s for {who:it/them} in {operation}|; {waiting} waited {waited} s for {who:it/them}|; {waiting} waited "
    "for {who:it/them}]]",
    remedy=(
        RemedyStep(
            explanation="look at the file server or the disk behind that path, and at the kernel log",
            each=PROCESSES,
            where="{on}",
            command="timeout 5 ls -l /proc/{pid}/fd; dmesg -T | grep -i -E 'nfs|lustre|fuse|blocked for "
            "more'; nfsstat -m",
        ),
        RemedyStep(
            explanation="the process cannot be killed before the server answers: mount with a timeout, or keep "
            "data and checkpoints on storage that answers"
        ),
    ),
)
def rank_in_storage(case: Analysis) -> Iterator[Hit]:
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
    yield from stall_hits(case, StallKind.IO)
