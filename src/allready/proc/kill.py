"""Signals to exactly the processes that were meant.

Signals go through a pidfd, so that a pid cannot be reused between the check of its start time and the signal.
"""

import contextlib
import errno
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from typing import Any

from allready.proc.process import ProcessId, identify, is_running

REAP_S = 2.0  # a killed process in an uninterruptible system call cannot be waited for; do not wait for ever


@contextlib.contextmanager
def pidfd_of(process: ProcessId) -> Iterator[int | None]:
    """A pidfd of a process that still runs, else None.

    Raises:
        OSError: the kernel has no pidfds (before Linux 5.3).
    """
    try:
        pidfd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield pidfd if is_running(process) else None
    finally:
        os.close(pidfd)


def send_signal(process: ProcessId, number: int) -> bool:
    """Send a signal; False where the process has ended."""
    with pidfd_of(process) as pidfd, contextlib.suppress(ProcessLookupError):
        if pidfd is not None:
            signal.pidfd_send_signal(pidfd, number)
            return True
    return False


def signal_thread(pid: int, thread: int, number: int) -> None:
    """Send a signal to one thread of a process: no other thread's system call is interrupted by it.

    Raises:
        OSError: there is no such thread, or this machine's number of the system call is not known.
    """
    import ctypes

    call = _TGKILL.get(os.uname().machine)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(call), ctypes.c_long(pid), ctypes.c_long(thread), ctypes.c_long(number)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


_TGKILL = {"x86_64": 234, "aarch64": 131, "riscv64": 131, "ppc64le": 250, "s390x": 241}
"""glibc has a function for it since 2.30 only."""


def kill_all(processes: Iterable[ProcessId], *, timeout_s: float) -> set[ProcessId]:
    """SIGKILL these processes and wait for their end; our children among them are zombies then.

    Returns those that still run after `timeout_s` (uninterruptible sleep); empty in all normal cases.
    """
    deadline = time.monotonic() + timeout_s
    with contextlib.ExitStack() as stack:
        waiting: dict[int, ProcessId] = {}
        poller = select.poll()
        for process in processes:
            pidfd = stack.enter_context(pidfd_of(process))
            if pidfd is None:
                continue
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            waiting[pidfd] = process
            poller.register(pidfd, select.POLLIN)
        while waiting and (left_s := deadline - time.monotonic()) > 0:
            for pidfd, _ in poller.poll(left_s * 1000):
                poller.unregister(pidfd)
                del waiting[pidfd]
        return set(waiting.values())


def reap(process: ProcessId) -> None:
    """Collect an ended child of ours; nothing happens when it is no child or was collected already."""
    if identify(process.pid) == process:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)


def signal_group(leader: int, number: int) -> None:
    """Send a signal to a process group, while its leader is not reaped, so that the number cannot be another's.

    One of another user, or that has ended, does not get it.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def end_child(child: "subprocess.Popen[Any]", *, timeout_s: float = REAP_S) -> None:
    """End a child that has a session of its own, reap it, and close our ends of its pipes.

    While it is not reaped, or another process still holds its pipes, its whole process group is killed.  One that
    hangs in the kernel is left behind after `timeout_s`.
    """
    pipes = [pipe for pipe in (child.stdin, child.stdout, child.stderr) if pipe is not None and not pipe.closed]
    if child.returncode is None or pipes:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        except PermissionError:  # one of the group runs as another user
            child.kill()
    for pipe in pipes:
        with contextlib.suppress(OSError):  # what was not yet written to it
            pipe.close()
    try:
        child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        # In an uninterruptible call (a broken GPU or file system); it is reaped when that ends, or by init.
        child.returncode = -signal.SIGKILL
