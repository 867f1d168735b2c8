"""In which system call the main thread of a process waits, and for what file."""

import os
import platform
from collections.abc import Collection, Mapping
from functools import cache

from msgspec.structs import replace

from allready.model.process import ENDS, POLLS, READS, SystemCall
from allready.proc.clocks import PROC
from allready.proc.process import maps_of, open_file, read_long, read_text

# Only calls that a stuck process waits in; numbers are part of the kernel's interface and never change.
_X86_64 = {
    0: "read", 1: "write", 7: "poll", 8: "lseek", 9: "mmap", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv",
    20: "writev", 23: "select", 26: "msync", 34: "pause", 35: "nanosleep", 40: "sendfile", 42: "connect", 43: "accept",
    44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4", 72: "fcntl", 73: "flock", 74: "fsync",
    75: "fdatasync", 76: "truncate", 77: "ftruncate", 78: "getdents", 128: "rt_sigtimedwait", 130: "rt_sigsuspend",
    162: "sync", 202: "futex", 217: "getdents64", 230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid",
    257: "openat", 262: "newfstatat", 270: "pselect6", 271: "ppoll", 277: "sync_file_range", 281: "epoll_pwait",
    285: "fallocate", 288: "accept4", 295: "preadv", 296: "pwritev", 306: "syncfs", 326: "copy_file_range",
    332: "statx", 426: "io_uring_enter", 441: "epoll_pwait2", 4: "stat", 5: "fstat", 6: "lstat", 2: "open", 3: "close",
    449: "futex_waitv", 24: "sched_yield",
}  # fmt: skip
_GENERIC = {  # arm64, riscv64, loongarch64
    21: "epoll_ctl", 22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 45: "truncate", 46: "ftruncate",
    47: "fallocate", 56: "openat", 57: "close", 61: "getdents64", 62: "lseek", 63: "read", 64: "write", 65: "readv",
    66: "writev", 67: "pread64", 68: "pwrite64", 69: "preadv", 70: "pwritev", 71: "sendfile", 72: "pselect6",
    73: "ppoll", 79: "newfstatat", 80: "fstat", 81: "sync", 82: "fsync", 83: "fdatasync", 84: "sync_file_range",
    95: "waitid", 98: "futex", 101: "nanosleep", 115: "clock_nanosleep", 124: "sched_yield", 133: "rt_sigsuspend",
    137: "rt_sigtimedwait", 202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg",
    212: "recvmsg", 222: "mmap", 227: "msync", 242: "accept4", 260: "wait4", 267: "syncfs", 285: "copy_file_range",
    291: "statx", 426: "io_uring_enter", 441: "epoll_pwait2", 449: "futex_waitv",
}  # fmt: skip

_ON_DESCRIPTOR = frozenset({
    "read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "fsync", "fdatasync", "flock",
    "fcntl", "ftruncate", "fallocate", "getdents", "getdents64", "ioctl", "recvfrom", "recvmsg", "sendto", "sendmsg",
    "connect", "accept", "accept4", "sync_file_range", "syncfs", "fstat", "close", "lseek",
})  # fmt: skip
"""Calls whose first argument is the descriptor that they wait for."""
_MAX_DESCRIPTOR = 1 << 31
_FUTEX_WAITS = frozenset({0, 6, 9, 11, 13})
"""Operations of futex whose fourth argument is a time limit: wait and lock_pi, with their variants."""
_FUTEX_COMMAND, _FUTEX_PRIVATE = 0x7F, 0x80
_SELECTS = frozenset({"select", "pselect6"})
MAX_LOCKS_BYTES = 1 << 20
MAX_THREADS = 512
_ENDLESS = ("pipe:", "anon_inode:", "/dev/")
"""What a thread may read for ever that has nothing else to do."""


@cache
def _names() -> dict[int, str]:
    machine = platform.machine()
    return _X86_64 if machine in {"x86_64", "AMD64"} else _GENERIC if machine != "i686" else {}


def syscall_of(pid: int) -> tuple[SystemCall | None, str | None]:
    """The call, and the path behind its descriptor (which is not opened); (None, None) when it may not be seen."""
    line = read_text(f"{PROC}/{pid}/syscall", 512)
    call = parse_syscall(line, _names())
    if call is not None and call.is_shared and not is_shared(line, maps_of(pid)):
        call = replace(call, is_shared=False)
    return call, None if call is None or call.descriptor is None else open_file(pid, call.descriptor)


def parse_syscall(line: str, names: dict[int, str]) -> SystemCall | None:
    """A line of /proc/PID/syscall.  A lock that may be of several processes is taken for a shared one, see
    `is_shared`."""
    words = line.split()
    if not words:
        return None
    if words[0] == "running":
        return SystemCall(name="running")
    try:
        number = int(words[0])
        first = int(words[1], 16) if len(words) > 1 else None
    except ValueError:
        return None
    if number < 0:  # blocked, but in no system call: a page fault
        return SystemCall(name="page fault")
    name = names.get(number, f"syscall {number}")
    if name in _ON_DESCRIPTOR and first is not None and first < _MAX_DESCRIPTOR:
        return SystemCall(name=name, descriptor=first)
    if name == "futex":
        return _futex(words[1:])
    return SystemCall(name=name, has_descriptors=name in _SELECTS and bool(first))


def is_shared(line: str, maps: bytes) -> bool:
    """Whether the lock of a futex lies in memory that other processes may have, too.

    C++'s futures and the joining of threads wait without the flag that says that a lock is one process's own.
    """
    at = int(line.split()[1], 16)
    for one in maps.splitlines():
        area, _, rest = one.partition(b" ")
        begin, _, end = area.partition(b"-")
        if int(begin, 16) <= at < int(end, 16):
            return rest[3:4] == b"s"
    return False


def other_threads(pid: int) -> dict[str, str]:
    """The line of /proc/PID/task/TID/syscall of each of its threads but the main one."""
    try:
        threads = os.listdir(f"{PROC}/{pid}/task")  # noqa: PTH208 - names, not paths
    except OSError:
        return {}
    others = (thread for thread in threads[:MAX_THREADS] if thread != str(pid))
    return {thread: read_text(f"{PROC}/{pid}/task/{thread}/syscall", 512) for thread in others}


def other_calls(pid: int, lines: Collection[str]) -> tuple[str, ...]:
    """Which calls of its other threads, given by their lines, end by themselves: a sleep, a read of a file or a
    connection."""
    found = set()
    for call in (parse_syscall(line, _names()) for line in lines):
        if call is None:
            continue
        path = open_file(pid, call.descriptor) if call.descriptor is not None and call.name in READS else None
        if call.name in ENDS or (path is not None and not path.startswith(_ENDLESS)):
            found.add(call.name)
    return tuple(sorted(found))


def limited_waits(pid: int, lines: Mapping[str, str], handles: Collection[int]) -> dict[str, SystemCall]:
    """In which wait with a time limit, for another process or for a connection each thread is that has one, by what a
    stack dump calls it.

    Args:
        lines: `other_threads`.
        handles: `pthread_self()` of threads.  It lies above the stack of its thread and below any other above it.
    """
    pointers = {thread: at for thread, line in lines.items() if (at := _stack_pointer(line)) is not None}
    names = {thread: thread for thread in lines}
    for handle in handles:
        if below := [thread for thread, at in pointers.items() if at < handle]:
            names[max(below, key=pointers.__getitem__)] = f"0x{handle:016x}"
    calls = {thread: call for thread, line in lines.items() if (call := parse_syscall(line, _names())) is not None}
    if any(call.is_shared for call in calls.values()):
        maps = maps_of(pid)
        calls = {t: replace(c, is_shared=c.is_shared and is_shared(lines[t], maps)) for t, c in calls.items()}
    return {
        names[thread]: call
        for thread, call in calls.items()
        if call.name in POLLS | _SELECTS or call.has_limit or call.is_shared
    }


def _stack_pointer(line: str) -> int | None:
    """The last but one of the words of a call."""
    words = line.split()
    try:
        return int(words[-2], 16) if len(words) > 2 else None
    except ValueError:
        return None


def file_lock_holder(pid: int) -> int | None:
    """The process that holds the file lock (flock, fcntl) for which this one waits; None where that is not seen, as of
    locks of another machine or of an open file description that has no owner."""
    return parse_locks(read_long(f"{PROC}/locks", MAX_LOCKS_BYTES).decode(errors="replace"), pid)


def parse_locks(text: str, waiter: int) -> int | None:
    """In /proc/locks a holder's line is followed by those of the processes that it blocks, under one number."""
    holders: dict[str, int] = {}
    for line in text.splitlines():
        words = line.split()
        is_blocked = words[1:2] == ["->"]
        pid = words[5 if is_blocked else 4] if len(words) > 5 else ""
        if not pid.isdecimal():  # -1: no process owns it
            continue
        if is_blocked and int(pid) == waiter:
            return holders.get(words[0])
        if not is_blocked:
            holders[words[0]] = int(pid)
    return None


def _futex(arguments: list[str]) -> SystemCall:
    try:
        operation, limit = int(arguments[1], 16), int(arguments[3], 16)
    except (ValueError, IndexError):
        return SystemCall(name="futex")
    waits, is_private = operation & _FUTEX_COMMAND in _FUTEX_WAITS, bool(operation & _FUTEX_PRIVATE)
    has_limit = waits and bool(limit)
    return SystemCall(name="futex", has_limit=has_limit, is_shared=waits and not has_limit and not is_private)
