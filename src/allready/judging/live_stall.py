"""Why a rank does not come: a reason that stays (stopped, blocked, elsewhere), or work that ends by itself."""

from msgspec import Struct
from msgspec.structs import replace

from allready.judging.live_status import (
    age_s,
    evidence_of,
    held_s,
    is_idle,
    is_silent,
    offset_s,
    place_since_s,
    same_place_s,
    status_of,
)
from allready.judging.run_signs import evidence
from allready.model import (
    ChildRow,
    Confidence,
    Evidence,
    FaultClass,
    Live,
    ProcessStack,
    ProcessState,
    RankEvidence,
    RankStatus,
    RunEvidence,
)

STOPPED_S = 0.9
"""A process that is stopped for less may be one that somebody slows down by pulses."""
BEAT_S = 0.25
GONE_S = 1.0
FRESH_BEAT_S = 0.8
GIL_S = 1.5
"""A beacon beats five times a second."""
BLOCKED_S = 2.0
SHARE_OF_S = 2.5
MOVES_S = 1.0
"""Whose stack was another one so short a time ago does something."""
REMOTE_IO_S = 3.0
LOCAL_IO_S = 30.0
"""A disk that flushes gigabytes takes its time; a file server that does not answer for seconds is gone."""

REMOTE_WAITS = ("nfs", "rpc_", "fuse", "request_wait_answer", "ceph", "lustre", "ll_", "cl_", "ptlrpc", "ldlm", "cifs",
                "smb", "v9fs", "p9_", "gpfs", "mmfs", "beegfs", "ubifs_wait")  # fmt: skip
FILE_CALLS = {
    "read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "fsync", "fdatasync", "open",
    "openat", "stat", "fstat", "lstat", "newfstatat", "statx", "getdents", "getdents64", "close", "ftruncate",
    "fallocate", "flock", "syncfs", "sync", "sync_file_range", "copy_file_range", "sendfile", "lseek", "page fault",
}  # fmt: skip
SLEEP_CALLS = {"nanosleep", "clock_nanosleep", "select", "pselect6", "pause", "rt_sigtimedwait", "rt_sigsuspend"}
LOCK_CALLS = {"futex", "futex_waitv"}
NETWORK_CALLS = {"recvfrom", "recvmsg", "sendto", "sendmsg", "connect", "accept", "accept4"}
POLLS = {"poll", "ppoll", "epoll_wait", "epoll_pwait", "epoll_pwait2"}

WORKING = {"cpu_work", "tokenize", "import_or_compile", "io", "data_loading", "subprocess_wait", "network_wait"}
"""What a rank does that ends by itself, as long as nothing else says that it does not."""
JOINS = {"in_collective", "gpu_wait"}
FOREIGN = WORKING | {"sleep"}
"""What another thread may do that the main thread rightly waits for."""


class Reason(Struct, frozen=True, kw_only=True):
    """Why one rank does not come.

    kind: "stopped", "traced", "gil", "child", "io", "lock", "elsewhere", "leaving", "left", "silent", "sleep", "work",
    "unknown".  `stays`: it does not go away by itself.  `doing`: in words of the evidence; `what`: the path, the child.
    `began_s`: since when, on node 0's clock, as far as known.
    """

    rank: int
    kind: str
    fault_class: FaultClass
    stays: bool
    confidence: Confidence = Confidence.LIKELY
    doing: str = ""
    site: str = ""
    what: str = ""
    began_s: float | None = None
    evidence: tuple[Evidence, ...] = ()


def why(live: Live, run: RunEvidence | None, rank: int) -> Reason:
    """The reason of one rank that others wait for."""
    status, seen, stack = status_of(live, rank), evidence_of(live, rank), stack_of(run, rank)
    if status is None or is_silent(live, rank):
        return Reason(rank=rank, kind="silent", fault_class=FaultClass.NET_BROKEN, stays=False)
    if not _is_of_now(live, status):
        seen = stack = None  # it was somewhere else when its stack was taken
    told = _told(rank, status, seen, stack)
    site = _site(status, stack)
    if status.is_gone and (status.exit_code not in {None, 0} or status.signal not in LEAVING_SIGNALS):
        return Reason(
            rank=rank, kind="died", fault_class=FaultClass.DEAD, stays=False, doing=_end(status), evidence=told
        )
    if status.is_gone:
        return Reason(
            rank=rank,
            kind="left",
            fault_class=FaultClass.DESYNC_FLOW,
            stays=True,
            doing=_end(status),
            evidence=told,
            began_s=_at(live, rank, status.ended_s),
            confidence=Confidence.CERTAIN,
            site=site,
        )
    for found in (
        _halted(live, status),
        _gil(live, status, seen, stack),
        _child(live, status, seen, stack),
        _disk(live, status, seen),
    ):
        if found is not None:
            kind, fault_class, stays, sure, doing, what, began_s = found
            return Reason(
                rank=rank,
                kind=kind,
                fault_class=fault_class,
                stays=stays,
                confidence=sure,
                doing=doing,
                what=what,
                site=site,
                began_s=began_s,
                evidence=told,
            )
    reason = _by_stack(live, status, seen, stack, told, site)
    if _has_left_its_groups(live, run, status) and not reason.stays:
        return replace(reason, kind="leaving", fault_class=FaultClass.DESYNC_FLOW, stays=True)
    return reason


def _is_of_now(live: Live, status: RankStatus) -> bool:
    """Whether the rank has stood where it stands since before its node answered; both by the clock of that node."""
    answer = live.evidence.get(live.node_of_rank().get(status.rank, -1))
    if answer is None or status.site_since_s is None or status.is_gone:
        return True
    return answer.status.time_s >= status.site_since_s  # the look before the stacks were asked for


def _has_left_its_groups(live: Live, run: RunEvidence | None, status: RankStatus) -> bool:
    """It had groups and has had none for a while, and it does not end: they were destroyed."""
    if status.groups or status.phase == "ending":
        return False
    if (held_s(live, status.rank, lambda s: not s.groups and s.phase != "ending") or 0.0) < GONE_S:
        return False
    return any(
        position.enqueued > 0
        for progress in (run.progress if run is not None else ())
        if (position := progress.positions.get(status.rank)) is not None
    )


def doing_of(status: RankStatus, seen: RankEvidence | None, stack: ProcessStack | None) -> str:
    """What the main thread does, by its frames; where they do not tell, by its system call and processor time."""
    kind = stack.activity if stack is not None else ""
    call = _call(seen)
    if kind not in {"", "unreadable", "user_code", "user_idle", "lock"}:
        return kind
    if kind in {"user_code", "user_idle"} and status.framework == "jax" and call in LOCK_CALLS | POLLS:
        return "gpu_wait"  # what asks for an array's value has no frame of Python
    if kind == "lock" and call in {"", "running", *LOCK_CALLS, *POLLS}:
        return "lock"
    if status.process_state == ProcessState.RUNNING or call == "running" or (status.cpu_share or 0.0) > 0.5:
        return "cpu_work"
    if call in LOCK_CALLS:
        return "lock"
    if call in SLEEP_CALLS:
        return "sleep"
    if call in FILE_CALLS and seen is not None and _is_file(seen.open_file):
        return "io"
    if call in NETWORK_CALLS:
        return "network_wait"
    if call in {"wait4", "waitid"}:
        return "subprocess_wait"
    if kind in {"user_idle", "lock"}:
        return kind
    return PHASES.get(status.phase, "cpu_work" if (status.cpu_share or 0.0) > 0.2 else kind or "")


def stack_of(run: RunEvidence | None, rank: int) -> ProcessStack | None:
    """The stack of the rank's own process."""
    stacks = run.stacks if run is not None else ()
    return next((s for s in stacks if s.rank == rank and s.role == "rank"), None)


LEAVING_SIGNALS = {None, "SIGTERM", "SIGINT", "SIGHUP"}
PHASES = {
    "saving": "io", "loading": "data_loading", "compiling": "import_or_compile", "importing": "import_or_compile"
}  # fmt: skip
"""What the beacon's word for a phase is among the words of stacks."""

Found = tuple[str, FaultClass, bool, Confidence, str, str, float | None]


def _halted(live: Live, status: RankStatus) -> Found | None:
    if not status.is_frozen:
        return None
    held = held_s(live, status.rank, lambda s: s.is_frozen) or 0.0
    if status.heartbeat_age_s is not None:  # pulses that every look falls into: its beacon has spoken between them
        held = min(held, status.heartbeat_age_s + BEAT_S + age_s(live, live.node_of_rank().get(status.rank)))
    state = status.process_state
    return (
        state,
        FaultClass.CPU_STUCK,
        held >= STOPPED_S,
        Confidence.CERTAIN,
        state,
        "State: T (stopped)" if state == "stopped" else "State: t (tracing stop)",
        live.now_s - held,
    )


def _gil(live: Live, status: RankStatus, seen: RankEvidence | None, stack: ProcessStack | None) -> Found | None:
    """Its beacon, a thread of the same interpreter, does not get its turn, while the process is not stopped.

    Libraries that are loaded hold the GIL for seconds, and an interpreter that ends gives threads no turn any more.
    """
    stale = status.heartbeat_age_s
    if (
        stale is None
        or stale < GIL_S
        or status.process_state == ProcessState.DISK
        or status.phase in {"starting", "ending"}
    ):
        return None
    has_frames = stack is not None and any(t.is_main and t.frames for t in stack.threads)
    if stack is not None and (stack.activity == "exit" or not has_frames):
        return None
    call = _call(seen)
    rests = status.cpu_share is not None and status.cpu_share < 0.1 and call not in {"running", "page fault"}
    # A thread that imports or computes has the GIL, and gives it back; on a crowded machine it is slow to.
    others_work = stack is not None and any(t.activity in FOREIGN for t in stack.threads if not t.is_main)
    stays = rests and has_frames and stale >= BLOCKED_S and status.phase not in {"importing", "compiling"}
    stays = stays and not others_work
    return (
        "gil",
        FaultClass.CPU_STUCK,
        stays,
        Confidence.CERTAIN if rests else Confidence.LIKELY,
        "gil",
        call or status.process_state,
        live.now_s - stale,
    )


def _child(live: Live, status: RankStatus, seen: RankEvidence | None, stack: ProcessStack | None) -> Found | None:
    children = seen.children if seen is not None else ()
    broken = [
        c for c in children if c.state in ProcessState.FROZEN or (c.state == ProcessState.ZOMBIE and c.role == "loader")
    ]
    activity = doing_of(status, seen, stack)
    if not broken or activity not in {"data_loading", "subprocess_wait", "lock", "user_idle", "sleep", ""}:
        return None
    worst: ChildRow = min(broken, key=lambda c: (c.role != "loader", c.pid))
    what = f"{worst.pid} ({worst.role}, {worst.state})"
    stays = same_place_s(live, status.rank) >= STOPPED_S
    return "child", FaultClass.CPU_STUCK, stays, Confidence.CERTAIN, activity or "data_loading", what, None


def _disk(live: Live, status: RankStatus, seen: RankEvidence | None) -> Found | None:
    """It waits in the kernel for storage: a matter of seconds where a file server is meant, else of patience."""
    wchan, call = (seen.wchan or "") if seen is not None else "", _call(seen)
    remote = wchan.lstrip("_").startswith(REMOTE_WAITS)
    if status.process_state != ProcessState.DISK and not remote:
        return None
    held = held_s(
        live,
        status.rank,
        lambda s: s.process_state == ProcessState.DISK or (remote and s.process_state == ProcessState.SLEEPING),
    )
    stay = min(held or 0.0, same_place_s(live, status.rank) or (held or 0.0))
    path = seen.open_file if seen is not None else None
    what = " ".join(w for w in (path or "", f"({call or 'kernel'}{', ' + wchan if wchan else ''})") if w)
    stays = stay >= (REMOTE_IO_S if remote else LOCAL_IO_S) and is_idle(live, status.rank)
    if not stays and not (remote and stay >= MOVES_S):
        return None  # whoever writes much is often seen so
    sure = Confidence.CERTAIN if remote else Confidence.LIKELY
    return "io", FaultClass.CPU_STUCK, stays, sure, "io", what, live.now_s - stay


def _by_stack(
    live: Live,
    status: RankStatus,
    seen: RankEvidence | None,
    stack: ProcessStack | None,
    told: tuple[Evidence, ...],
    site: str,
) -> Reason:
    doing = doing_of(status, seen, stack)
    stay = same_place_s(live, status.rank)
    began = place_since_s(live, status.rank)
    common = {"rank": status.rank, "doing": doing, "site": site, "evidence": told, "began_s": began}
    flow, stuck, busy = FaultClass.DESYNC_FLOW, FaultClass.CPU_STUCK, FaultClass.CPU_BUSY
    if doing in JOINS and (doing == "in_collective" or status.framework == "jax"):
        return Reason(kind="elsewhere", fault_class=flow, stays=stay >= 1.0, **common)  # type: ignore[arg-type]
    if doing == "exit":
        return Reason(kind="leaving", fault_class=flow, stays=stay >= 1.0, **common)  # type: ignore[arg-type]
    if doing == "lock" and stay >= BLOCKED_S:
        # Another thread that works will let it go; where none does, nobody will.
        helped = stack is None or any(t.activity in FOREIGN for t in stack.threads if not t.is_main)
        stays = not helped
        runs_python = status.heartbeat_age_s is None or status.heartbeat_age_s < FRESH_BEAT_S
        if is_idle(live, status.rank) and runs_python:
            return Reason(kind="lock", fault_class=stuck, stays=stays, **common)  # type: ignore[arg-type]
    # The share of the last two seconds tells of this place only after these.
    works = (status.cpu_share or 0.0) > 0.2 and (stay > SHARE_OF_S or doing not in {"sleep", "lock", "user_idle"})
    works = works or (status.children_cpu_share or 0.0) > 0.2
    if works or 0.0 < stay < MOVES_S or doing in WORKING:
        if doing not in WORKING:
            common["doing"] = "cpu_work"
        return Reason(kind="work", fault_class=busy, stays=False, **common)  # type: ignore[arg-type]
    if doing in {"sleep", "user_idle"}:
        return Reason(kind="sleep", fault_class=stuck, stays=False, **common)  # type: ignore[arg-type]
    sure = Confidence.POSSIBLE
    return Reason(kind="unknown", fault_class=stuck, stays=False, confidence=sure, **common)  # type: ignore[arg-type]


def _call(seen: RankEvidence | None) -> str:
    return (seen.syscall or "").partition("(")[0].strip() if seen is not None else ""


def _is_file(path: str | None) -> bool:
    not_files = ("socket:", "pipe:", "anon_inode:", "/dev/pts", "/dev/null", "/dev/tty")
    return bool(path) and not str(path).startswith(not_files)


def _at(live: Live, rank: int, time_s: float | None) -> float | None:
    return None if time_s is None else time_s - offset_s(live, live.node_of_rank().get(rank))


def _end(status: RankStatus) -> str:
    return status.signal or (f"exit code {status.exit_code}" if status.exit_code is not None else "ended")


def _site(status: RankStatus, stack: ProcessStack | None) -> str:
    """The line of the user's own program, or else what the stack shows."""
    return status.site or (stack.site if stack is not None else "")


def _told(rank: int, status: RankStatus, seen: RankEvidence | None, stack: ProcessStack | None) -> tuple[Evidence, ...]:
    """The process's state, its stacks and its children as evidence."""
    cpu = "" if status.cpu_share is None else f", {status.cpu_share:.0%} of a processor"
    beat = "" if status.heartbeat_age_s is None else f", beacon {status.heartbeat_age_s:.1f} s ago"
    found = [
        Evidence(
            source=f"rank {rank}",
            text=f"process {status.pid}: {status.process_state}, phase {status.phase}{cpu}{beat}"
            + (f", at {status.site}" if status.site else ""),
        )
    ]
    if seen is not None and (seen.wchan or seen.syscall):
        call = f"system call {seen.syscall}" if seen.syscall else ""
        path = f" on {seen.open_file}" if seen.open_file else ""
        where = f"kernel function {seen.wchan}" if seen.wchan else ""
        found.append(Evidence(source=f"rank {rank} /proc", text=", ".join(w for w in (call + path, where) if w)))
    if stack is not None and stack.threads:
        main = next((t for t in stack.threads if t.is_main), stack.threads[0])
        others = [t for t in stack.threads if t is not main and t.frames][:3]
        for thread, name in ((main, "main thread"), *((t, f"thread {t.name}") for t in others)):
            frames = " < ".join(f"{f.function} ({f.file}:{f.line})" for f in thread.frames[:4])
            found.append(evidence(stack.origin, f"rank {rank} {name}: {frames}", stack.time_s))
    elif seen is not None and seen.why_no_stack:
        found.append(Evidence(source=f"rank {rank}", text=f"no stack: {seen.why_no_stack}"[:300]))
    found += [
        Evidence(source=f"rank {rank}", text=f"{child.role} process {child.pid}: {child.state}")
        for child in (seen.children if seen is not None else ())
        if child.state in ProcessState.FROZEN | {ProcessState.ZOMBIE, ProcessState.DISK}
    ][:3]
    return tuple(found[:7])
