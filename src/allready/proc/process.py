"""Processes from /proc: quick reads of small files, never an error for a process that is gone.

Parsers take text, so that files read through a `Host` go through them as well.  `root` is /proc, or a copy in a test.
"""

import functools
import operator
import os
import stat
import time
from collections.abc import Iterable, Iterator

from msgspec import Struct

from allready.model import ProcessEnd, ProcessState
from allready.model.process import end_of, signal_name, signal_number
from allready.proc.clocks import PROC, TICKS_PER_S, age_s, read_small

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MAX_COMMAND_BYTES = 4096
MAX_ENVIRON_BYTES = 1 << 20
MAX_MAPS_BYTES = 16 << 20
MAX_DESCRIPTORS = 8192
"""Of one process; of a process with more only these are listed."""
MAX_THREADS = 4096

_STATES = {
    "R": ProcessState.RUNNING, "S": ProcessState.SLEEPING, "I": ProcessState.SLEEPING, "P": ProcessState.SLEEPING,
    "D": ProcessState.DISK, "T": ProcessState.STOPPED, "t": ProcessState.TRACED, "Z": ProcessState.ZOMBIE,
    "X": ProcessState.EXITED, "x": ProcessState.EXITED,
}  # fmt: skip
"""By the kernel's letter."""


class ProcessId(Struct, frozen=True):
    """One process of this boot: a pid alone may be reused.  `start_ticks`: as in `Stat`."""

    pid: int
    start_ticks: int


class Stat(Struct, frozen=True):
    """/proc/PID/stat, or that of a thread.  `start_ticks`: clock ticks from boot to its start."""

    pid: int
    name: str
    state: ProcessState
    parent: int
    group: int
    session: int
    start_ticks: int
    cpu_s: float
    num_threads: int
    rss_bytes: int

    @property
    def id(self) -> ProcessId:
        """Proves later that a process is still this one."""
        return ProcessId(self.pid, self.start_ticks)

    @property
    def is_running(self) -> bool:
        return self.state not in ProcessState.GONE

    def age_s(self) -> float:
        return age_s(self.start_ticks)


# -- parsers


def parse_stat(pid: int, text: str) -> Stat | None:
    """A line of /proc/PID/stat; None when it is damaged.  The name may contain blanks and brackets."""
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    try:
        return Stat(
            pid=pid,
            name=head.partition("(")[2],
            state=_STATES.get(fields[0], ProcessState.UNKNOWN),
            parent=int(fields[1]),
            group=int(fields[2]),
            session=int(fields[3]),
            start_ticks=int(fields[19]),
            cpu_s=(int(fields[11]) + int(fields[12])) / TICKS_PER_S,
            num_threads=int(fields[17]),
            rss_bytes=int(fields[21]) * PAGE_BYTES,
        )
    except (IndexError, ValueError):
        return None


def status_field(text: str, name: str) -> str:
    """One field of /proc/PID/status; "" where it is not there."""
    return next((row[len(name) + 1 :].strip() for row in text.splitlines() if row.startswith(f"{name}:")), "")


def status_bits(text: str, name: str) -> int | None:
    """A field of /proc/PID/status that is a mask in hexadecimal: `CapEff`, `SigCgt`."""
    try:
        return int(status_field(text, name), 16)
    except ValueError:
        return None


def parse_command(cmdline: str, comm: str) -> str:
    """The command line with blanks between the words; "[name]" where there is none, "" without a name."""
    words = " ".join(cmdline.replace("\0", " ").split())
    name = comm.strip()
    return words or (f"[{name}]" if name else "")


def parse_environ(data: bytes) -> dict[str, str]:
    """/proc/PID/environ: the environment that the process was started with."""
    found: dict[str, str] = {}
    for item in data.split(b"\0"):
        name, equals, value = item.partition(b"=")
        if equals:
            found[name.decode(errors="replace")] = value.decode(errors="replace")
    return found


# -- files


def read_regular(path: str | os.PathLike[str], max_bytes: int, *, end: bool = False) -> bytes | None:
    """At most so many bytes of a regular file, from its beginning or its end; None for anything else.

    For files in folders that a rank writes to: whatever it puts there, a link to a device, a pipe or a file that grows
    while it is read, takes no time and no more memory than that.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            return None
        start = max(0, info.st_size - max_bytes) if end else 0
        return os.pread(fd, min(max_bytes, max(0, info.st_size - start)), start)
    except OSError:
        return None
    finally:
        os.close(fd)


def read_text(path: str, max_bytes: int = 8192) -> str:
    """The beginning of a file of /proc or /sys as text; "" when it is not there or not ours to read."""
    return (read_small(path, max_bytes) or b"").decode(errors="replace")


def read_long(path: str, max_bytes: int) -> bytes:
    """A file of /proc that comes in parts; what may not be read is empty."""
    parts = []
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            while max_bytes > 0 and (part := file.read(min(max_bytes, 1 << 16))):
                parts.append(part)
                max_bytes -= len(part)
    except OSError:
        pass
    return b"".join(parts)


def _links(folder: str) -> Iterator[str]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names, not paths
    except OSError:  # ended, or another user's
        return
    for name in names[:MAX_DESCRIPTORS]:
        try:
            yield os.readlink(f"{folder}/{name}")  # noqa: PTH115 - names, not paths
        except OSError:
            continue


# -- one process


def all_pids(root: str = PROC) -> list[int]:
    """Every pid that can be seen now."""
    return [int(name) for name in os.listdir(root) if name.isdecimal()]  # noqa: PTH208 - names, not paths


def read_stat(pid: int, root: str = PROC) -> Stat | None:
    """The state of one process; None when there is none (any more)."""
    return parse_stat(pid, read_text(f"{root}/{pid}/stat"))


def read_thread(pid: int, thread: int, root: str = PROC) -> Stat | None:
    """The state of one thread; None when there is none (any more)."""
    return parse_stat(thread, read_text(f"{root}/{pid}/task/{thread}/stat"))


def identify(pid: int) -> ProcessId | None:
    """Pid and start time of a process that exists, also of a zombie; else None."""
    stat = read_stat(pid)
    return None if stat is None else stat.id


def is_running(process: ProcessId | int) -> bool:
    """Whether a process runs: not ended, no zombie, and its pid not reused where its start is given."""
    pid = process if isinstance(process, int) else process.pid
    stat = read_stat(pid)
    return stat is not None and stat.is_running and process in (pid, stat.id)


def main_thread_s(pid: int, root: str = PROC) -> tuple[float | None, float | None]:
    """Of the main thread so far: processor time, and time in which it could run and waited for a CPU.

    None when it is gone; the second one also where the kernel does not count it (no /proc/PID/task/TID/schedstat).
    """
    words = read_text(f"{root}/{pid}/task/{pid}/schedstat", 128).split()
    if len(words) >= 2 and words[0].isdigit() and words[1].isdigit():
        return int(words[0]) / 1e9, int(words[1]) / 1e9
    stat = read_thread(pid, pid, root)
    return (stat.cpu_s if stat is not None else None), None


def command_of(pid: int) -> str:
    """The command line as `parse_command`, at most 4 KiB; "" when the process is gone."""
    return parse_command(read_text(f"{PROC}/{pid}/cmdline", MAX_COMMAND_BYTES), read_text(f"{PROC}/{pid}/comm", 64))


def arguments_of(pid: int, root: str = PROC) -> list[bytes]:
    """The words of the command line, as far as 4 KiB."""
    return (read_small(f"{root}/{pid}/cmdline", MAX_COMMAND_BYTES) or b"").split(b"\0")


def environ_of(pid: int, root: str = PROC) -> dict[str, str]:
    """The environment with which a process was started; empty where it may not be read."""
    return parse_environ(read_long(f"{root}/{pid}/environ", MAX_ENVIRON_BYTES))


def program_of(pid: int, root: str = PROC) -> str | None:
    """The path of its program; None where it may not be seen."""
    try:
        return os.readlink(f"{root}/{pid}/exe").removesuffix(" (deleted)")  # noqa: PTH115 - a name, not a path
    except OSError:
        return None


def runs_our_program(pid: int) -> bool:
    """Whether it is an instance of the very program that this process is, as far as may be seen."""
    try:
        return os.path.samefile(f"{PROC}/{pid}/exe", f"{PROC}/self/exe")  # noqa: PTH121 - links of /proc
    except OSError:
        return False


def maps_of(pid: int, root: str = PROC) -> bytes:
    """What the process has mapped, one line each; empty where it may not be read."""
    return read_long(f"{root}/{pid}/maps", MAX_MAPS_BYTES)


def wchan_of(pid: int) -> str | None:
    """The kernel function in which the main thread sleeps; None when it does not, or may not be seen."""
    text = read_text(f"{PROC}/{pid}/wchan", 128).strip()
    return text if text not in {"", "0"} else None


def switches_of(pid: int) -> int | None:
    """How often the main thread has given up its processor: as often as before where it still waits in the same call;
    None when it is gone."""
    number = status_field(read_text(f"{PROC}/{pid}/status", 16384), "voluntary_ctxt_switches")
    return int(number) if number.isdigit() else None


def has_handler(pid: int, signal_number: int) -> bool:
    """Whether the process handles a signal; False when it is gone.  The signal would end a process that does not."""
    caught = status_bits(read_text(f"{PROC}/{pid}/status", 16384), "SigCgt") or 0
    return bool(caught >> (signal_number - 1) & 1)


def outlived_signals(pid: int, names: Iterable[str], root: str = PROC) -> tuple[str, ...]:
    """Those that would not end the process at once: it handles, ignores or blocks them, or has not been given them yet.

    Empty when it is gone.
    """
    text = read_text(f"{root}/{pid}/status", 16384)
    masks = [status_bits(text, name) or 0 for name in ("SigCgt", "SigIgn", "SigBlk", "SigPnd", "ShdPnd")]
    bits = functools.reduce(operator.or_, masks)
    return tuple(name for name in sorted(names) if bits >> (signal_number(name) - 1) & 1)


def children_of(pid: int) -> list[int] | None:
    """Pids of the children of all its threads; None where the kernel does not list them."""
    try:
        threads = os.listdir(f"{PROC}/{pid}/task")  # noqa: PTH208 - names, not paths
    except OSError:
        return []
    found: list[int] = []
    is_listed = False
    for thread in threads[:MAX_THREADS]:
        data = read_small(f"{PROC}/{pid}/task/{thread}/children", 65536)
        if data is not None:
            is_listed = True
            found += [int(word) for word in data.split() if word.isdigit()]
    return found if is_listed or not read_stat(pid) else None


def socket_inodes(pid: int) -> Iterator[int]:
    """Inodes of the sockets that a process has open, as far as they may be seen."""
    for target in _links(f"{PROC}/{pid}/fd"):
        if target.startswith("socket:[") and target[8:-1].isdigit():
            yield int(target[8:-1])


def has_open(pid: int, path: str) -> bool:
    """Whether a process has the file of this real path open, as far as that may be seen."""
    return path in _links(f"{PROC}/{pid}/fd")


def open_file(pid: int, descriptor: int) -> str | None:
    """The path behind a descriptor, which is not opened; None where it may not be seen."""
    try:
        return os.readlink(f"{PROC}/{pid}/fd/{descriptor}")  # noqa: PTH115 - names, not paths
    except OSError:
        return None


def namespace(pid: int | str, kind: str) -> int | None:
    """Identity of a process's namespace (kind "net", "pid", ...); None when it is gone or not ours to see."""
    try:
        return os.stat(f"{PROC}/{pid}/ns/{kind}").st_ino  # noqa: PTH116
    except OSError:
        return None


def ended_child(pid: int) -> ProcessEnd | None:
    """How a child of ours ended, None while it runs.  It stays unreaped.

    Raises:
        ChildProcessError: no child of ours, or its status was taken: by another wait, or because SIGCHLD is ignored.
    """
    info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if info is None:
        return None
    is_signal = info.si_code in {os.CLD_KILLED, os.CLD_DUMPED}
    code, name = (None, signal_name(info.si_status)) if is_signal else (info.si_status, None)
    return end_of(code, name, time_s=time.time())
