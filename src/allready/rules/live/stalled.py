from collections.abc import Iterator

from msgspec.structs import replace

from allready.judging.analysis import Analysis
from allready.judging.hang import blame_hang
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stall import StallKind
from allready.judging.stated import said
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
