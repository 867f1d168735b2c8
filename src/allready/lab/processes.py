"""Processes by (pid, start time): look at them, and end exactly those.

A pid alone may have been reused since it was written down; pid and start time together name one process until the
next boot.  Signals go through a pidfd, so that nothing can be reused between the look and the signal.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from allready.errors import LabError


class ProcessId(msgspec.Struct, frozen=True, kw_only=True):
    """One process of this boot; `start_ticks` is field 22 of /proc/PID/stat."""

    pid: int
    start_ticks: int


class Stat(msgspec.Struct, frozen=True, kw_only=True):
    """What the lab reads from /proc/PID/stat."""

    state: str
    group: int
    session: int
    start_ticks: int


def read_stat(pid: int) -> Stat | None:
    """The state of one process; None when there is none (any more)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name, in parentheses, may itself contain both
    return Stat(state=fields[0], group=int(fields[2]), session=int(fields[3]), start_ticks=int(fields[19]))


def identify(pid: int) -> ProcessId | None:
    """Pid and start time of a process that exists, be it a zombie; else None."""
    stat = read_stat(pid)
    return None if stat is None else ProcessId(pid=pid, start_ticks=stat.start_ticks)


def is_running(process: ProcessId) -> bool:
    """Whether this very process still runs: not ended, no zombie, pid not reused."""
    stat = read_stat(process.pid)
    return stat is not None and stat.start_ticks == process.start_ticks and stat.state not in "ZX"


def namespace(pid: int | str, kind: str) -> int | None:
    """Identity of a process's namespace (kind "net", "pid", ...); None when it is gone or not ours to see."""
    try:
        return Path(f"/proc/{pid}/ns/{kind}").stat().st_ino
    except OSError:
        return None


def all_pids() -> Iterator[int]:
    """Every pid that can be seen now."""
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            yield int(entry.name)


def belonging_to(leaders: Iterable[ProcessId], namespaces: frozenset[int]) -> set[ProcessId]:
    """Running processes that are `leaders`, in a leader's group or session, or inside one of these net namespaces.

    The caller vouches that each namespace is held by a running process of its own: an inode may be reused as well.
    """
    running = {leader.pid for leader in leaders if is_running(leader)}
    found = set()
    for pid in all_pids():
        stat = read_stat(pid)
        if stat is None or stat.state in "ZX":
            continue
        if {pid, stat.group, stat.session} & running or (namespaces and namespace(pid, "net") in namespaces):
            found.add(ProcessId(pid=pid, start_ticks=stat.start_ticks))
    return found


def open_pidfd(pid: int) -> int:
    """A file descriptor that becomes readable when the process ends.

    Raises:
        ProcessLookupError: no such process.
        LabError: the kernel has no pidfd_open.
    """
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError as error:
        raise LabError(f"pidfd_open: {error.strerror}; the lab needs Linux 5.3 or newer") from error


def end(processes: Iterable[ProcessId], *, timeout_s: float) -> set[ProcessId]:
    """SIGKILL exactly these processes, wait for their end and reap those that are our children.

    Returns those that still run after `timeout_s` (uninterruptible sleep); empty in all normal cases.
    """
    deadline = time.monotonic() + timeout_s
    waiting: dict[int, ProcessId] = {}
    poller = select.poll()
    try:
        for process in processes:
            try:
                pidfd = open_pidfd(process.pid)
            except ProcessLookupError:
                continue
            waiting[pidfd] = process
            if not is_running(process):
                os.close(pidfd)
                del waiting[pidfd]
                continue
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            poller.register(pidfd, select.POLLIN)
        while waiting and (left_s := deadline - time.monotonic()) > 0:
            for pidfd, _ in poller.poll(left_s * 1000):
                poller.unregister(pidfd)
                os.close(pidfd)
                del waiting[pidfd]
        return set(waiting.values())
    finally:
        for pidfd in waiting:
            os.close(pidfd)


def reap(process: ProcessId) -> None:
    """Collect an ended child of ours; nothing happens when it is somebody else's or was collected already."""
    if identify(process.pid) == process:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)
