"""What agents tell of a rank that others wait for, while the job runs: its process, its stack, its children."""

from allready.judging.analysis import Analysis
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
from allready.judging.stall import FOREIGN, LiveFacts, RankFacts
from allready.model import ChildRow, Evidence, Live, ProcessStack, ProcessState, RankEvidence, RankStatus, RunEvidence

HEARTBEAT_S = 0.25
"""A process that is stopped by pulses may have written between two samples."""

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

PHASES = {
    "saving": "io", "loading": "data_loading", "compiling": "import_or_compile", "importing": "import_or_compile"
}  # fmt: skip
"""What the beacon's word for a phase is among the words of stacks."""


def facts_of_live(case: Analysis, rank: int) -> RankFacts:
    """What is known of one rank that others wait for."""
    live, run = case.live, case.run
    assert live is not None
    status, seen, stack = status_of(live, rank), evidence_of(live, rank), stack_of(run, rank)
    if status is None or is_silent(live, rank):
        return RankFacts(rank=rank, live=LiveFacts(state=ProcessState.UNKNOWN, is_heard=False))
    if not _is_of_now(live, status):
        seen = stack = None  # it was somewhere else when its stack was taken
    threads = stack.threads if stack is not None else ()
    call, wchan = _call(seen), (seen.wchan or "") if seen is not None else ""
    is_remote = wchan.lstrip("_").startswith(REMOTE_WAITS)
    return RankFacts(
        rank=rank,
        doing=doing_of(status, seen, stack),
        site=status.site or (stack.site if stack is not None else ""),
        evidence=_shown(rank, status, seen, stack),
        live=LiveFacts(
            state=status.process_state,
            phase=status.phase,
            framework=status.framework,
            exit_code=status.exit_code,
            signal=status.signal,
            ended_s=None if status.ended_s is None else status.ended_s - offset_s(live, live.node_of_rank().get(rank)),
            frozen_s=_frozen_s(live, status),
            heartbeat_age_s=status.heartbeat_age_s,
            call=call,
            waits_for_server=is_remote,
            storage_s=_storage_s(live, status, is_remote=is_remote),
            path=_path(seen, call, wchan),
            child=_broken_child(seen),
            stay_s=same_place_s(live, rank),
            place_since_s=place_since_s(live, rank),
            is_idle=is_idle(live, rank),
            cpu_share=status.cpu_share,
            children_cpu_share=status.children_cpu_share or 0.0,
            has_stack=stack is not None,
            has_frames=any(t.is_main and t.frames for t in threads),
            stack_is_exit=stack is not None and stack.activity == "exit",
            others_work=any(t.activity in FOREIGN for t in threads if not t.is_main),
            left_groups_s=_left_groups_s(live, run, status),
            now_s=live.now_s,
        ),
    )


def _is_of_now(live: Live, status: RankStatus) -> bool:
    """Whether the rank has stood where it stands since before its node answered; both by the clock of that node."""
    answer = live.evidence.get(live.node_of_rank().get(status.rank, -1))
    if answer is None or status.site_since_s is None or status.is_gone:
        return True
    return answer.status.time_s >= status.site_since_s  # the sample before the stacks were asked for


def _frozen_s(live: Live, status: RankStatus) -> float:
    if not status.is_frozen:
        return 0.0
    held = held_s(live, status.rank, lambda s: s.is_frozen) or 0.0
    if status.heartbeat_age_s is not None:  # pulses that every sample falls into: its beacon has written between them
        held = min(held, status.heartbeat_age_s + HEARTBEAT_S + age_s(live, live.node_of_rank().get(status.rank)))
    return held


def _storage_s(live: Live, status: RankStatus, *, is_remote: bool) -> float | None:
    if status.process_state is not ProcessState.DISK and not is_remote:
        return None
    states = {ProcessState.DISK, ProcessState.SLEEPING} if is_remote else {ProcessState.DISK}
    held = held_s(live, status.rank, lambda s: s.process_state in states) or 0.0
    return min(held, same_place_s(live, status.rank) or held)


def _path(seen: RankEvidence | None, call: str, wchan: str) -> str:
    path = seen.open_file if seen is not None else None
    return " ".join(w for w in (path or "", f"({call or 'kernel'}{', ' + wchan if wchan else ''})") if w)


def _broken_child(seen: RankEvidence | None) -> str:
    """A descendant that is frozen, or a loader that ended unnoticed: `4711 (loader, stopped)`."""
    children = seen.children if seen is not None else ()
    broken = [
        c for c in children if c.state in ProcessState.FROZEN or (c.state == ProcessState.ZOMBIE and c.role == "loader")
    ]
    if not broken:
        return ""
    worst: ChildRow = min(broken, key=lambda c: (c.role != "loader", c.pid))
    return f"{worst.pid} ({worst.role}, {worst.state})"


def _left_groups_s(live: Live, run: RunEvidence, status: RankStatus) -> float:
    """For how long it has had no groups, although it used some, and does not end: they were destroyed."""
    used = any(
        position.enqueued > 0
        for progress in run.progress
        if (position := progress.positions.get(status.rank)) is not None
    )
    if status.groups or status.phase == "ending" or not used:
        return 0.0
    return held_s(live, status.rank, lambda s: not s.groups and s.phase != "ending") or 0.0


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


def _call(seen: RankEvidence | None) -> str:
    return (seen.syscall or "").partition("(")[0].strip() if seen is not None else ""


def _is_file(path: str | None) -> bool:
    not_files = ("socket:", "pipe:", "anon_inode:", "/dev/pts", "/dev/null", "/dev/tty")
    return bool(path) and not str(path).startswith(not_files)


def _shown(
    rank: int, status: RankStatus, seen: RankEvidence | None, stack: ProcessStack | None
) -> tuple[Evidence, ...]:
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
