"""One process from /proc: quick reads of small files, never an error for a process that is gone."""

import os
import time
from dataclasses import dataclass

from allready.model import ProcessEnd, ProcessState
from allready.model.process import end_of, signal_name

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MAX_COMMAND_BYTES = 4096

_STATES = {
    "R": ProcessState.RUNNING, "S": ProcessState.SLEEPING, "I": ProcessState.SLEEPING, "P": ProcessState.SLEEPING,
    "D": ProcessState.DISK, "T": ProcessState.STOPPED, "t": ProcessState.TRACED, "Z": ProcessState.ZOMBIE,
    "X": ProcessState.EXITED, "x": ProcessState.EXITED,
}  # fmt: skip
"""By the kernel's letter."""


@dataclass(frozen=True, slots=True)
class Stat:
    """What /proc/PID/stat tells.  `start_ticks` and the pid together name one process until the next boot."""

    pid: int
    name: str
    state: ProcessState
    parent: int
    start_ticks: int
    cpu_s: float
    num_threads: int
    rss_bytes: int


def read_small(path: str, most_bytes: int = 8192) -> bytes | None:
    """The beginning of a file of /proc or /sys; None when it is not there or not ours to read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        return os.read(fd, most_bytes)
    except OSError:  # the process ended between opening and reading
        return None
    finally:
        os.close(fd)


def read_stat(pid: int) -> Stat | None:
    """The state of one process; None when there is none (any more)."""
    data = read_small(f"/proc/{pid}/stat")
    return None if data is None else parse_stat(pid, data)


def parse_stat(pid: int, data: bytes) -> Stat | None:
    """One line of /proc/PID/stat; None when it is damaged.  The name may contain blanks and brackets."""
    head, _, tail = data.rpartition(b")")
    fields = tail.split()
    try:
        return Stat(
            pid=pid,
            name=head.partition(b"(")[2].decode(errors="replace"),
            state=_STATES.get(fields[0].decode(errors="replace"), ProcessState.UNKNOWN),
            parent=int(fields[1]),
            start_ticks=int(fields[19]),
            cpu_s=(int(fields[11]) + int(fields[12])) / TICKS_PER_S,
            num_threads=int(fields[17]),
            rss_bytes=int(fields[21]) * PAGE_BYTES,
        )
    except (IndexError, ValueError):
        return None


def read_thread(pid: int, thread: int) -> Stat | None:
    """The state of one thread; None when there is none (any more)."""
    data = read_small(f"/proc/{pid}/task/{thread}/stat")
    return None if data is None else parse_stat(thread, data)


def main_thread_s(pid: int) -> tuple[float | None, float | None]:
    """Of the main thread so far: processor time, and time in which it could run and waited for a CPU.

    None when it is gone; the second one also where the kernel does not count it (no /proc/PID/task/TID/schedstat).
    """
    words = (read_small(f"/proc/{pid}/task/{pid}/schedstat", 128) or b"").split()
    if len(words) >= 2 and words[0].isdigit() and words[1].isdigit():
        return int(words[0]) / 1e9, int(words[1]) / 1e9
    stat = read_thread(pid, pid)
    return (stat.cpu_s if stat is not None else None), None


def age_s(pid: int) -> float:
    """How long a process has been there; 0 when it is gone."""
    stat = read_stat(pid)
    return 0.0 if stat is None else max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - stat.start_ticks / TICKS_PER_S)


def command_of(pid: int) -> str:
    """The command line with blanks between the words, at most 4 KiB; "[name]" where there is none, "" when gone."""
    data = read_small(f"/proc/{pid}/cmdline", MAX_COMMAND_BYTES)
    if data:
        return " ".join(data.decode(errors="replace").replace("\0", " ").split())
    name = read_small(f"/proc/{pid}/comm", 64)
    return f"[{name.decode(errors='replace').strip()}]" if name else ""


def wchan_of(pid: int) -> str | None:
    """The kernel function in which the main thread sleeps; None when it does not, or may not be seen."""
    data = read_small(f"/proc/{pid}/wchan", 128)
    text = data.decode(errors="replace").strip() if data else ""
    return text if text not in {"", "0"} else None


def children_of(pid: int, *, most_threads: int = 4096) -> list[int] | None:
    """Pids of the children of all its threads; None where the kernel does not list them."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - names, not paths
    except OSError:
        return []
    found: list[int] = []
    is_listed = False
    for thread in threads[:most_threads]:
        data = read_small(f"/proc/{pid}/task/{thread}/children", 65536)
        if data is not None:
            is_listed = True
            found += [int(word) for word in data.split() if word.isdigit()]
    return found if is_listed or not read_stat(pid) else None


def caught_signals(pid: int) -> int:
    """Bits of the signals that a process handles (bit n - 1 is signal n); 0 when it is gone."""
    data = read_small(f"/proc/{pid}/status", 16384) or b""
    for line in data.splitlines():
        if line.startswith(b"SigCgt:"):
            try:
                return int(line[7:].strip(), 16)
            except ValueError:
                return 0
    return 0


def end_of_zombie(pid: int) -> ProcessEnd | None:
    """How a child of ours ended that is not yet reaped; None for anything else.  It stays unreaped."""
    try:
        info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except OSError:
        return None
    if info is None:
        return None
    is_signal = info.si_code in {os.CLD_KILLED, os.CLD_DUMPED}
    code, name = (None, signal_name(info.si_status)) if is_signal else (info.si_status, None)
    return end_of(code, name, time_s=time.time())
