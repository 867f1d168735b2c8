"""What a live process shows of why its rank does not come: one list of cases over its status, stack and children."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from allready.evidence.stacks.libraries import is_users
from allready.evidence.stacks.meaning import frames_text
from allready.judging.analysis import Analysis
from allready.judging.exchanges import awaits_handle
from allready.judging.live_status import (
    MOVES_S,
    SHARE_OF_S,
    age_s,
    evidence_of,
    held_s,
    is_idle,
    is_silent,
    place_since_s,
    same_place_s,
    share_here,
    since_by_node_s,
    status_of,
)
from allready.judging.stall import HELD_UP, LEAVING, SLEEPING, WAITING, WORKING, StallCause, StallKind
from allready.judging.stated import said, stated
from allready.model import (
    ChildRow,
    Confidence,
    Evidence,
    FaultClass,
    Live,
    Phrase,
    ProcessStack,
    ProcessState,
    RankEvidence,
    RankStatus,
    RunEvidence,
    ThreadStack,
    clock_time,
)
from allready.model.process import ENDING_SIGNALS, ENDS, FILE_LOCKS, LOCK_CALLS, POLLS, READS, SystemCall
from allready.patterns import compiled

STOPPED_S = 0.9
"""A process that is stopped for less may be one that is slowed down by pulses."""
HEARTBEAT_S = 0.25
"""A process that is stopped by pulses may have written between two samples."""
FRESH_HEARTBEAT_S = 0.8
GIL_S = 1.5
"""The beacon's thread writes five times a second."""
BLOCKED_S = 2.0
REMOTE_IO_S = 3.0
LOCAL_IO_S = 30.0
"""A disk that flushes gigabytes takes its time; a file server that does not answer for seconds is gone."""
GONE_S = 1.0
REAPED_S = 5.0
"""So long a process that has ended is without an exit code where its parent is slow; longer where it never asks."""
_OF_CHILDREN = r"(?:^|/)(?:multiprocessing|concurrent/futures)/"
"""Where a main thread in a lock may wait for child processes."""
_WAKES = r"(?:^|/)asyncio/\w+\.py:|(?:^|/)selectors\.py:select$"
"""Frames of an event loop."""
_SERVES = r"(?:^|/)(?:multiprocessing/\w+|concurrent/futures/process|socketserver)\.py$"
"""Frames of threads that wait so for as long as the process lives, and let no other go on."""
STAYS_S = 1.0
WORKS_SHARE = 0.2

MAY_END = WORKING | {"sleep", "in_collective"}
"""What another thread may do that the main thread rightly waits for."""
CHILD_WAITS = {"data_loading", "subprocess_wait", "lock", "user_idle", "sleep", ""}
LEAVING_SIGNALS = ENDING_SIGNALS | {None}
REMOTE_WAITS = ("nfs", "rpc_", "fuse", "request_wait_answer", "ceph", "lustre", "ll_", "cl_", "ptlrpc", "ldlm", "cifs",
                "smb", "v9fs", "p9_", "gpfs", "mmfs", "beegfs", "ubifs_wait")  # fmt: skip
FILE_CALLS = {
    "read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "fsync", "fdatasync", "open",
    "openat", "stat", "fstat", "lstat", "newfstatat", "statx", "getdents", "getdents64", "close", "ftruncate",
    "fallocate", "syncfs", "sync", "sync_file_range", "copy_file_range", "sendfile", "lseek", "page fault",
}  # fmt: skip
SLEEP_CALLS = {"nanosleep", "clock_nanosleep", "select", "pselect6", "pause", "rt_sigtimedwait", "rt_sigsuspend"}
ACCEPTS = {"accept", "accept4"}
NETWORK_CALLS = {"recvfrom", "recvmsg", "sendto", "sendmsg", "connect"} | ACCEPTS
MEANINGS: Sequence[tuple[Collection[str], str]] = (
    (LOCK_CALLS, "lock"),
    (FILE_LOCKS, "file_lock"),
    (SLEEP_CALLS, "sleep"),
    (FILE_CALLS, "io"),
    (NETWORK_CALLS, "network_wait"),
    ({"wait4", "waitid"}, "subprocess_wait"),
)
"""What a main thread does that is in one of these calls, where no library's frame says what for."""

PHASES = {
    "saving": "io", "loading": "data_loading", "compiling": "import_or_compile", "importing": "import_or_compile"
}  # fmt: skip
"""What the beacon's word for a phase is among the words of stacks."""


class _Rank:
    """One rank that others wait for, and what its agent reports of it."""

    def __init__(self, case: Analysis, live: Live, status: RankStatus) -> None:
        self.case, self.live, self.run, self.status = case, live, case.run, status
        self.node = live.node_of_rank().get(status.rank)
        # Evidence of an earlier moment says nothing: the rank was somewhere else when its stack was taken.
        is_of_now = _is_of_now(live, status)
        self.seen = evidence_of(live, status.rank) if is_of_now else None
        self.stack = stack_of(case.run, status.rank) if is_of_now else None
        self.share = share_here(live, status.rank)
        self.doing = doing_of(status, self.seen, self.stack, self.share)
        self.call = _call(self.seen)
        call = self.seen.syscall if self.seen is not None else None
        self.is_timed = call is not None and call.has_limit
        self.is_shared = call is not None and call.is_shared
        self.is_select = call is not None and call.has_descriptors
        self.stay_s = same_place_s(live, status.rank)
        self.has_word_since = _has_word_since(live, self.node)
        threads = self.stack.threads if self.stack is not None else ()
        self.has_frames = any(t.is_main and t.frames for t in threads)
        children = self.seen.children if self.seen is not None else ()
        self.others_work = _others_work(threads, self.seen, MAY_END)
        if any(t.is_main and any(compiled(_OF_CHILDREN).search(f.file) for f in t.frames) for t in threads):
            self.others_work = self.others_work or any(_may_go_on(child) for child in children)
        # What only threads of its own can fill.
        self.is_alone = all(c.state == ProcessState.ZOMBIE for c in children)
        self.is_in_queue = (
            any(t.is_main and t.activity == "queue" for t in threads) and self.call in LOCK_CALLS and self.is_alone
        )

    def cause(self, kind: StallKind, fault_class: FaultClass, **known: Any) -> StallCause:
        """The cause, with all that is known of the rank."""
        status, stack = self.status, self.stack
        usual: dict[str, Any] = {"doing": self.doing, "began_s": place_since_s(self.live, status.rank)}
        return StallCause(
            rank=status.rank,
            kind=kind,
            fault_class=fault_class,
            site=status.call_site or (stack.site if stack is not None else None),
            **({"evidence": self.shown} | usual | known),
        )

    @property
    def shown(self) -> tuple[Evidence, ...]:
        """Its state, stacks and children."""
        return _shown(self.status.rank, self.status, self.seen, self.stack)

    def held_s(self, test: Callable[[RankStatus], bool]) -> float:
        """For how long every status of the rank has passed the test."""
        return held_s(self.live, self.status.rank, test) or 0.0


def stall_of_process(case: Analysis, rank: int) -> StallCause:
    """Why a rank of the running job does not come: the first case that fits."""
    live = case.live
    assert live is not None
    status = status_of(live, rank)
    if status is None or is_silent(live, rank):
        return StallCause(rank=rank, kind=StallKind.SILENT, fault_class=FaultClass.NET_BROKEN)
    found = _Rank(case, live, status)
    return next(cause for ask in CASES if (cause := ask(found)) is not None)


def _may_go_on(child: ChildRow) -> bool:
    """Whether a child does something that ends by itself; one that waits for work reads a pipe, or is in a lock."""
    call = child.syscall.name if child.syscall is not None else ""
    reads = call in READS and not (child.open_file or "pipe:").startswith("pipe:")
    return child.state in {ProcessState.RUNNING, ProcessState.DISK} or call in ENDS | POLLS or reads


def _others_work(threads: Iterable[ThreadStack], seen: RankEvidence | None, ends: Collection[str]) -> bool:
    """Whether another thread does what ends by itself, or waits with a limit.  A limit of a collective ends the job."""
    limited = seen.limited_waits if seen is not None else {}
    others = [t for t in threads if not t.is_main]
    may_wake = any(_may_wake(t, limited) for t in others if t.activity != "in_collective")
    return may_wake or any(t.activity in ends for t in others) or (seen is not None and bool(seen.other_calls))


def _may_wake(thread: ThreadStack, limited: Mapping[str, SystemCall]) -> bool:
    """Whether a thread will go on that runs an event loop or a timer, or whose wait in a line of the user's has a limit
    or is for a connection.  Libraries have threads that look after something for as long as the process lives."""
    is_loop = any(compiled(_WAKES).search(f"{f.file}:{f.function}") for f in thread.frames)
    if is_loop and not any(compiled(_SERVES).search(f.file) for f in thread.frames):
        return True
    return _is_timer(thread) or (thread.ident in limited and any(map(is_users, thread.frames)))


def _is_timer(thread: ThreadStack) -> bool:
    """`Timer.run` waits by itself, where `Thread.run` calls the user's function."""
    files = [f.file.rpartition("/")[2] for f in thread.frames]
    calls = [f.function.rpartition(".")[2] for f in thread.frames]
    return "run" in calls and {"threading.py"} == set(files) and "wait" in calls[: calls.index("run")]


def _ended(rank: _Rank) -> StallCause | None:
    status = rank.status
    if not status.is_gone:
        return None
    how = status.signal or (f"exit code {status.exit_code}" if status.exit_code is not None else "ended")
    if status.exit_code not in {None, 0} or status.signal not in LEAVING_SIGNALS:
        return rank.cause(StallKind.DIED, FaultClass.DEAD, doing=how, began_s=None)
    told_by = None if rank.node is None else rank.live.statuses.get(rank.node)
    ended_s = None if status.ended_s is None or told_by is None else told_by.by_node_0(status.ended_s)
    known: dict[str, Any] = {"stays": True, "confidence": Confidence.CERTAIN, "doing": how, "began_s": ended_s}
    if status.exit_code is None and status.signal is None:  # it is not known how: a job that only is watched
        is_awaited = status.process_state == ProcessState.ZOMBIE  # its parent is about to learn how it ended
        known["stays"] = not is_awaited or rank.held_s(lambda s: s.process_state == ProcessState.ZOMBIE) >= REAPED_S
        return rank.cause(StallKind.LEFT, FaultClass.DEAD, **known)
    return rank.cause(StallKind.LEFT, FaultClass.DESYNC_FLOW, **known)


def _frozen(rank: _Rank) -> StallCause | None:
    status = rank.status
    if not status.is_frozen:
        return None
    frozen_s = rank.held_s(lambda s: s.is_frozen)
    if status.heartbeat_age_s is not None:  # pulses that every sample falls into: its beacon has written between them
        frozen_s = min(frozen_s, status.heartbeat_age_s + HEARTBEAT_S + age_s(rank.live, rank.node))
    is_stopped = status.process_state == ProcessState.STOPPED
    return rank.cause(
        StallKind.STOPPED if is_stopped else StallKind.TRACED,
        FaultClass.CPU_STUCK,
        stays=frozen_s >= STOPPED_S,
        confidence=Confidence.CERTAIN,
        doing=str(status.process_state),
        what="State: T (stopped)" if is_stopped else "State: t (tracing stop)",
        began_s=rank.live.now_s - frozen_s,
    )


def _gil(rank: _Rank) -> StallCause | None:
    """Its beacon, a thread of the same interpreter, does not run, while the process is not stopped.

    Libraries that are loaded hold the GIL for seconds, and an interpreter that ends lets no thread run any more.
    """
    status, stack = rank.status, rank.stack
    stale_s = status.heartbeat_age_s
    is_elsewhere = status.process_state == ProcessState.DISK or status.phase in {"starting", "ending"}
    if stale_s is None or stale_s < GIL_S or is_elsewhere:
        return None
    if stack is not None and (stack.activity in LEAVING or not rank.has_frames):
        return None
    rests = status.cpu_share is not None and status.cpu_share < 0.1 and rank.call not in {"running", "page fault"}
    rests = rests and status.process_state != ProcessState.RUNNING  # it runs, or would if it had a processor
    # A thread that imports or computes has the GIL, and gives it back; where CPUs are short it is slow to.
    may_go_on = rank.others_work or status.phase in {"importing", "compiling"} or not rank.has_frames
    return rank.cause(
        StallKind.GIL,
        FaultClass.CPU_STUCK,
        stays=rests and stale_s >= BLOCKED_S and not may_go_on,
        confidence=Confidence.CERTAIN if rests else Confidence.LIKELY,
        doing="gil",
        what=rank.call or str(status.process_state),
        began_s=rank.live.now_s - stale_s,
    )


def _child(rank: _Rank) -> StallCause | None:
    """A descendant that is frozen, or a loader that ended unnoticed."""
    children = rank.seen.children if rank.seen is not None else ()
    broken = [
        c for c in children if c.state in ProcessState.FROZEN or (c.state == ProcessState.ZOMBIE and c.role == "loader")
    ]
    if not broken or rank.doing not in CHILD_WAITS:
        return None
    worst = min(broken, key=lambda c: (c.role != "loader", c.pid))
    return rank.cause(
        StallKind.CHILD,
        FaultClass.CPU_STUCK,
        stays=rank.stay_s >= STOPPED_S,
        confidence=Confidence.CERTAIN,
        doing=rank.doing or "data_loading",
        what=f"{worst.pid} ({worst.role}, {worst.state})",
        began_s=None,
    )


def _storage(rank: _Rank) -> StallCause | None:
    """It waits in the kernel for storage: a matter of seconds where a file server is meant, else of patience."""
    seen = rank.seen
    wchan = (seen.wchan or "") if seen is not None else ""
    is_remote = wchan.lstrip("_").startswith(REMOTE_WAITS)
    if rank.status.process_state != ProcessState.DISK and not is_remote:
        return None
    states = {ProcessState.DISK, ProcessState.SLEEPING} if is_remote else {ProcessState.DISK}
    held = rank.held_s(lambda s: s.process_state in states)
    for_s = min(held, rank.stay_s or held)
    stays = for_s >= (REMOTE_IO_S if is_remote else LOCAL_IO_S) and is_idle(rank.live, rank.status.rank)
    if not stays and not (is_remote and for_s >= MOVES_S):
        return None  # a rank that writes much is often seen so
    path = (seen.open_file or "") if seen is not None else ""
    return rank.cause(
        StallKind.IO,
        FaultClass.CPU_STUCK,
        stays=stays,
        confidence=Confidence.CERTAIN if is_remote else Confidence.LIKELY,
        doing="io",
        what=f"{path} ({rank.call or 'kernel'}{', ' + wchan if wchan else ''})".strip(),
        began_s=rank.live.now_s - for_s,
    )


def _elsewhere(rank: _Rank) -> StallCause | None:
    """In another call that waits for others, or on its way out."""
    is_joined = rank.doing in WAITING and (rank.doing == "in_collective" or rank.status.framework == "jax")
    stays = rank.stay_s >= STAYS_S and not _is_of_another_line(rank.status, rank.stack)
    stays = stays and (is_joined or rank.has_word_since)  # the next word may say that a signal makes it leave
    if stays and awaits_handle(rank.status, rank.stack):
        stays = _all_others_wait(rank)
    if not (is_joined or rank.doing in LEAVING) or (not stays and _has_left_its_groups(rank)):
        return None
    return rank.cause(StallKind.ELSEWHERE if is_joined else StallKind.LEAVING, FaultClass.DESYNC_FLOW, stays=stays)


def _all_others_wait(rank: _Rank) -> bool:
    """Whether no rank that lives is left that may make the other half of what this one waits for."""
    others = (s for r, s in rank.live.ranks().items() if r != rank.status.rank and not s.is_gone)
    return all(doing_in(rank.live, rank.run, s) in WAITING for s in others)


def _serves(rank: _Rank) -> StallCause | None:
    """It waits for a client to connect, itself or in the thread for whose queue it waits: a server without requests may
    wait for hours, and its other ranks with it."""
    threads = rank.stack.threads if rank.stack is not None else ()
    accepts = any(
        any(f.function == "accept" and f.file.endswith("socket.py") for f in t.frames[:1])
        and any(map(is_users, t.frames))  # else it is a library's, as `multiprocessing` has one that shares descriptors
        for t in threads
    )
    if rank.call not in ACCEPTS and not (accepts and rank.is_in_queue):
        return None
    return rank.cause(StallKind.AWAITS, FaultClass.CPU_STUCK, confidence=Confidence.POSSIBLE)


def _lock(rank: _Rank) -> StallCause | None:
    heartbeat_age_s = rank.status.heartbeat_age_s
    runs_python = heartbeat_age_s is None or heartbeat_age_s < FRESH_HEARTBEAT_S
    is_blocked = (
        (rank.doing == "lock" or rank.is_in_queue) and rank.stay_s >= BLOCKED_S and is_idle(rank.live, rank.status.rank)
    )
    # Another thread that works will release it; without one no thread will, and it waits on unless it has set a limit,
    # or another process may release it.
    stays = rank.stack is not None and not rank.others_work and not rank.is_timed and not rank.is_shared
    if not is_blocked or not runs_python or (not stays and _has_left_its_groups(rank)):
        return None
    return rank.cause(StallKind.LOCK, FaultClass.CPU_STUCK, stays=stays)


def _file_lock(rank: _Rank) -> StallCause | None:
    """It waits for a file lock that another rank keeps across a collective; that one is the cause.

    A thread or a child of the holder may release it: then it is a wait, as for any other process.  Whether there is
    such a thread is known only where the holder's main thread waits in a futex, as in Gloo.
    """
    number = _holder(rank.live, rank.node, rank.seen)
    status = None if number is None else status_of(rank.live, number)
    if rank.doing != "file_lock" or status is None or rank.stay_s < BLOCKED_S:
        return None
    holder = _Rank(rank.case, rank.live, status)
    is_held = holder.doing == "in_collective" and holder.stay_s >= BLOCKED_S and is_idle(rank.live, status.rank)
    is_seen = holder.has_frames and holder.call in LOCK_CALLS and not holder.is_timed
    if not is_held or not is_seen or holder.others_work or not holder.is_alone:
        return None
    what = (rank.seen.open_file or "") if rank.seen is not None else ""
    evidence = (*rank.shown[:4], *holder.shown[:4])
    known: dict[str, Any] = {"stays": True, "what": what, "doing": rank.doing, "evidence": evidence}
    return holder.cause(StallKind.LOCK, FaultClass.CPU_STUCK, **known)


def _holder(live: Live, node: int | None, seen: RankEvidence | None) -> int | None:
    """The rank that has the file lock for which one of its node waits."""
    pid = seen.lock_holder if seen is not None else None
    if pid is None or node is None or node not in live.statuses:
        return None
    return next((s.rank for s in live.statuses[node].ranks if s.pid == pid), None)


def _left_groups(rank: _Rank) -> StallCause | None:
    """It has destroyed its groups, and does not end."""
    return rank.cause(StallKind.LEAVING, FaultClass.DESYNC_FLOW, stays=True) if _has_left_its_groups(rank) else None


def _endless(rank: _Rank) -> StallCause | None:
    """Its program never leaves the loop in which it is."""
    if rank.doing != "endless_loop":
        return None
    return rank.cause(StallKind.ENDLESS, FaultClass.CPU_BUSY)


def _work(rank: _Rank) -> StallCause | None:
    """It computes, loads, saves, or waits for a child: this ends by itself."""
    status, doing = rank.status, rank.doing
    is_of_this_place = rank.stay_s > SHARE_OF_S or doing not in {"sleep", "lock", "user_idle"}
    uses_cpu = (status.cpu_share or 0.0) > WORKS_SHARE and is_of_this_place
    uses_cpu = uses_cpu or (status.children_cpu_share or 0.0) > WORKS_SHARE
    if not (uses_cpu or 0.0 < rank.stay_s < MOVES_S or doing in WORKING):
        return None
    # What it waits for does not answer, where neither it nor a child has used a processor for as long as a hang takes.
    is_held = doing in HELD_UP and rank.stay_s >= rank.live.hang_after_s and is_idle(rank.live, status.rank)
    fault_class = FaultClass.CPU_STUCK if is_held else FaultClass.CPU_BUSY
    known = "cpu_work" if rank.share > WORKS_SHARE else ""
    return rank.cause(StallKind.WORK, fault_class, doing=doing if doing in WORKING | SLEEPING else known)


def _store_key(rank: _Rank) -> StallCause | None:
    """It waits for a key that no rank has set."""
    if rank.status.awaits is None:
        return None
    return rank.cause(StallKind.AWAITS, FaultClass.DESYNC_FLOW, doing="store_key")


def _idle(rank: _Rank) -> StallCause | None:
    if rank.doing in {"sleep", "user_idle", "file_lock", "pipe_wait"}:
        is_sleep = rank.doing == "sleep" and not rank.is_select and rank.call not in POLLS | NETWORK_CALLS
        return rank.cause(StallKind.SLEEP if is_sleep else StallKind.AWAITS, FaultClass.CPU_STUCK)
    return rank.cause(StallKind.UNKNOWN, FaultClass.CPU_STUCK, confidence=Confidence.POSSIBLE)


CASES: Sequence[Callable[[_Rank], StallCause | None]] = (
    _ended, _frozen, _gil, _child, _storage, _elsewhere, _serves, _lock, _file_lock, _left_groups, _endless, _store_key,
    _work, _idle,
)  # fmt: skip
"""In this order; the last one always has an answer."""


def _is_of_now(live: Live, status: RankStatus) -> bool:
    """Whether the rank has stood where it stands since before its node answered; both by the clock of that node."""
    answer = live.evidence.get(live.node_of_rank().get(status.rank, -1))
    since_s = since_by_node_s(live, status.rank)
    if answer is None or since_s is None or status.is_gone:
        return True
    return answer.status.time_s >= since_s  # the sample before the stacks were asked for


def _has_word_since(live: Live, node: int | None) -> bool:
    """Whether the node has said something of its ranks after it answered with their stacks; both by its clock."""
    answer, word = (None, None) if node is None else (live.evidence.get(node), live.statuses.get(node))
    return answer is None or word is None or word.time_s >= answer.time_s


def _is_of_another_line(status: RankStatus, stack: ProcessStack | None) -> bool:
    """Whether the stack passes the file in which the rank stands by its status at other lines alone: it has gone on,
    and its beacon had no processor to say so."""
    site = status.call_site
    threads = stack.threads if stack is not None and site is not None else ()
    lines = {f.line for t in threads if t.is_main for f in t.frames if site is not None and f.file == site.file}
    return site is not None and bool(lines) and site.line not in lines


def _has_left_its_groups(rank: _Rank) -> bool:
    """It had groups and has had none for a while, and it does not end.

    On a busy machine its beacon may show its groups late: an operation that is newer than their absence says so.
    """
    if rank.status.groups or rank.status.phase == "ending":
        return False
    own = [p for g in rank.run.progress if (p := g.positions.get(rank.status.rank)) is not None and p.enqueued > 0]
    without_s = rank.held_s(lambda s: not s.groups and s.phase != "ending")
    made_s = max((p.last.created_s or 0.0 for p in own if p.last is not None), default=0.0)
    if not own or without_s < GONE_S or rank.node is None:
        return False
    begun_s = rank.live.statuses[rank.node].time_s - (without_s - age_s(rank.live, rank.node))  # by the node's clock
    return made_s <= begun_s


def doing_in(live: Live, run: RunEvidence | None, status: RankStatus) -> str:
    """What the main thread of a rank does, by the newest evidence."""
    rank = status.rank
    return doing_of(status, evidence_of(live, rank), stack_of(run, rank), share_here(live, rank))


def doing_of(status: RankStatus, seen: RankEvidence | None, stack: ProcessStack | None, share: float) -> str:
    """What the main thread does, by its frames; where they do not tell, by its system call and its share of processor
    time."""
    kind = stack.activity if stack is not None else ""
    call = _call(seen)
    if kind == "in_collective" and _prepares(status, call):
        return "cpu_work"
    if kind not in {"", "unreadable", "user_code", "user_idle", "lock"}:
        return kind
    is_jax = status.framework == "jax" and not status.waits_otherwise
    if is_jax and kind in {"user_code", "user_idle"} and call in LOCK_CALLS | POLLS:
        return "gpu_wait"  # what asks for an array's value has no frame of Python
    if status.phase in {"joining", "communicating"} and call in LOCK_CALLS:
        return "in_collective"  # what blocks in torch's making of a group, or for a handle, waits for other ranks
    if kind == "lock" and call in {"", "running", *LOCK_CALLS, *POLLS}:
        return "lock"
    if status.process_state == ProcessState.RUNNING or call == "running" or share > 0.5:
        return "cpu_work"
    by_call = next((meaning for calls, meaning in MEANINGS if call in calls), "")
    if by_call == "io" and seen is not None and not _is_file(seen.open_file):
        by_call = _of_no_file(seen)
    if by_call or kind in {"user_idle", "lock"}:
        return by_call or kind
    return PHASES.get(status.phase, "cpu_work" if share > WORKS_SHARE else kind or "")


def _prepares(status: RankStatus, call: str) -> bool:
    """Whether a rank in a call for all ranks computes and has made no operation yet: it pickles an object, say."""
    runs = status.process_state == ProcessState.RUNNING or call == "running"
    return runs and bool(status.groups) and all(g.waiting_s is None for g in status.groups)


def _of_no_file(seen: RankEvidence) -> str:
    """What a read or write of a connection or a pipe is; the opening of a named pipe waits for its other end."""
    path = seen.open_file or ""
    if path.startswith("pipe:") or seen.wchan == "wait_for_partner":
        return "pipe_wait"
    return "network_wait" if path.startswith("socket:") else ""


def stack_of(run: RunEvidence | None, rank: int) -> ProcessStack | None:
    """The stack of the rank's own process."""
    stacks = run.stacks if run is not None else ()
    return next((s for s in stacks if s.rank == rank and s.role == "rank"), None)


def waits_in_another_thread(run: RunEvidence | None, rank: int) -> bool:
    """Whether a thread waits in a collective while the main thread does something else, and may well go on.

    Hooks of autograd are called in a thread of its own, for which the main thread waits in `backward()`.
    """
    stack = stack_of(run, rank)
    if stack is None or stack.activity in {*WAITING, "", "unreadable"}:
        return False
    is_backward = any("torch/autograd/" in f.file for t in stack.threads if t.is_main for f in t.frames)
    return not is_backward and any(t.activity == "in_collective" for t in stack.threads if not t.is_main)


def waits_whole(live: Live, run: RunEvidence | None, rank: int) -> bool:
    """Whether its main thread waits for other ranks, or in a lock (`join`, `Future.result`) for a thread that does, and
    no thread of it does anything that ends by itself, or computes."""
    stack = stack_of(run, rank)
    if stack is None or stack.activity not in WAITING | {"lock", "queue"}:
        return False
    is_still = stack.activity == "gpu_wait" or is_idle(live, rank)  # to wait for a GPU may be to spin
    return is_still and not _others_work(stack.threads, evidence_of(live, rank), MAY_END - WAITING)


def _call(seen: RankEvidence | None) -> str:
    return seen.syscall.name if seen is not None and seen.syscall is not None else ""


def _call_words(call: SystemCall) -> Phrase | str:
    if call.has_limit:
        return said("futex with a time limit")
    return said("futex shared with other processes") if call.is_shared else str(call)


def _is_file(path: str | None) -> bool:
    not_files = ("socket:", "pipe:", "anon_inode:", "/dev/pts", "/dev/null", "/dev/tty")
    return bool(path) and not str(path).startswith(not_files)


def _shown(
    rank: int, status: RankStatus, seen: RankEvidence | None, stack: ProcessStack | None
) -> tuple[Evidence, ...]:
    """The process's state, its stacks and its children as evidence."""
    found = [
        stated(
            f"rank {rank}",
            "process {pid}: {state}, phase {phase}[[, {cpu} of a processor]][[, beacon {age} s ago]][[, at {site}]]",
            pid=status.pid,
            state=status.process_state,
            phase=status.phase,
            cpu=None if status.cpu_share is None else f"{status.cpu_share:.0%}",
            age=None if status.heartbeat_age_s is None else f"{status.heartbeat_age_s:.1f}",
            site=status.site or None,
        )
    ]
    if seen is not None and seen.syscall is not None:
        form = "system call {call}[[ on {file}]][[, kernel function {function}]]"
        file, function = seen.open_file or None, seen.wchan or None
        call = _call_words(seen.syscall)
        found.append(stated(f"rank {rank} /proc", form, call=call, file=file, function=function))
        if seen.lock_holder is not None:
            found.append(stated(f"rank {rank} /proc", "the lock is held by process {pid}", pid=seen.lock_holder))
    elif seen is not None and seen.wchan:
        found.append(stated(f"rank {rank} /proc", "kernel function {function}", function=seen.wchan))
    if stack is not None and stack.threads:
        main = next((t for t in stack.threads if t.is_main), stack.threads[0])
        others = [t for t in stack.threads if t is not main and t.frames][:3]
        form = "rank {rank} main thread: {frames}"
        for thread in (main, *others):
            frames = frames_text(thread.frames)
            found.append(
                stated(
                    str(stack.origin),
                    form if thread is main else "rank {rank} thread {thread}: {frames}",
                    time=clock_time(stack.time_s),
                    rank=rank,
                    thread=thread.name,
                    frames=frames[:400],
                )
            )
    elif status.has_lost_beacon:
        found.append(stated(f"rank {rank}", "its beacon is gone: it has become another program, or that thread died"))
    elif seen is not None and seen.why_no_stack and not status.is_gone:
        found.append(stated(f"rank {rank}", "no stack: {why}", why=str(seen.why_no_stack)[:300]))
    found += [
        stated(f"rank {rank}", "{role} process {pid}: {state}", role=child.role, pid=child.pid, state=child.state)
        for child in (seen.children if seen is not None else ())
        if child.state in ProcessState.FROZEN | {ProcessState.ZOMBIE, ProcessState.DISK}
    ][:3]
    return tuple(found[:7])
