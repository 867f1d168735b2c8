"""What /proc says about one process, without its help."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from allready.model import ProcessState

_STATES = {
    "R": ProcessState.RUNNING, "S": ProcessState.SLEEPING, "I": ProcessState.SLEEPING, "D": ProcessState.DISK,
    "T": ProcessState.STOPPED, "t": ProcessState.STOPPED, "Z": ProcessState.ZOMBIE, "X": ProcessState.EXITED,
}  # fmt: skip
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SHM = re.compile(r"(/dev/shm/(?:nccl|torch_|gloo)[^/\s]*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessView:
    """One look at a process."""

    state: ProcessState
    cpu_s: float  # user and system time since its start


def look(pid: int) -> ProcessView | None:
    """State and CPU time of a process; None when it is gone or may not be seen."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = text[text.rfind(")") + 2 :].split()  # the name before may hold anything
    try:
        return ProcessView(
            state=_STATES.get(fields[0], ProcessState.UNKNOWN), cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS_PER_S
        )
    except (IndexError, ValueError):
        return None


def wchan(pid: int) -> str | None:
    """The kernel function that the main thread sleeps in, if the kernel tells."""
    try:
        name = Path(f"/proc/{pid}/wchan").read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
    return name if name not in {"", "0"} else None


def catches(pid: int, signal_number: int) -> bool:
    """Whether the process has a handler for a signal, so that sending it does no harm."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    found = re.search(r"^SigCgt:\s*([0-9a-f]+)$", text, re.MULTILINE)
    return bool(found and int(found[1], 16) >> (signal_number - 1) & 1)


def shared_memory_files(pid: int) -> set[str]:
    """Files under /dev/shm that this process has mapped for a communicator and that still have a name.

    They stay behind when the process is killed before its communicator was complete.
    """
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    return {found[1] for line in lines if (found := _SHM.search(line))}


def oom_kills(pid: int) -> int | None:
    """How often the kernel killed for memory in the process's cgroup (version 2); None when it does not tell."""
    try:
        line = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
        path = next(row[3:] for row in line.splitlines() if row.startswith("0::"))
        text = Path(f"/sys/fs/cgroup{path}/memory.events").read_text(encoding="ascii")
        return next(int(row.split()[1]) for row in text.splitlines() if row.startswith("oom_kill "))
    except (OSError, StopIteration, ValueError, IndexError):
        return None


_THREAD = re.compile(r"^(?:Current thread|Thread) 0x([0-9a-f]+)")
_FRAME = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$')


def read_stack(dump: str, main_thread: int | None) -> tuple[str, ...]:
    """The main thread's frames in faulthandler's words, innermost first: "file:line function".

    Args:
        dump: what faulthandler wrote for all threads, newest dump last.
        main_thread: its ident, if known; else the last thread listed, which is the oldest.
    """
    threads: list[tuple[int, list[str]]] = []
    for line in dump.splitlines():
        if head := _THREAD.match(line):
            threads.append((int(head[1], 16), []))
        elif threads and (frame := _FRAME.match(line)):
            threads[-1][1].append(f"{frame[1]}:{frame[2]} {frame[3]}")
    for ident, found in reversed(threads):
        if main_thread is None or ident == main_thread:
            return tuple(found[:24])
    return ()


_EXCEPTION = re.compile(r"^(?:[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b.*|\s*what\(\):.*)$")


def exception_line(tail: str) -> str | None:
    """The last line that names an exception in what a process printed; else its last line; None when it was silent."""
    lines = [line.rstrip() for line in tail.splitlines() if line.strip()]
    for line in reversed(lines):
        if _EXCEPTION.match(line):
            return line.strip()[:2000]
    return lines[-1].strip()[:2000] if lines else None
