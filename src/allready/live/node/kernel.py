"""Lines of the kernel's log since the job began: what names a process of ours, and what a signature knows.

/dev/kmsg where it may be read (each agent has its own place in it); otherwise `dmesg`, once per question.
"""

import io
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from datetime import UTC, datetime

from allready.errors import FactUnavailable
from allready.facts.live import LiveHost
from allready.patterns import compiled

KMSG = "/dev/kmsg"
MAX_LINES = 4000
MAX_RECORDS_PER_POLL = 2000
MAX_CHOSEN = 400
RECORD_BYTES = 8192
INITIAL_PID_NAMESPACE = "pid:[4026531836]"

_RECORD = r"\d+,\d+,(\d+),[^;]*;(.*)"
_KILLED = r"(?:Killed process |[ ,]pid=)(\d{1,10})\b"
_OOM = r"(?i)ut of memory|oom-kill|oom_reaper"
_DMESG_TIME = r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)[,.](\d{1,9})([+-]\d\d:?\d\d)"


class KernelLog:
    """The kernel's lines of the last minutes."""

    def __init__(self, *, path: str = KMSG, since_s: float | None = None) -> None:
        self.problem: str | None = None
        self._since_s = time.time() if since_s is None else since_s
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._fd: int | None = None
        self._lock = threading.Lock()
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            self.problem = f"{path}: {error.strerror}"
            self._close()

    def poll(self) -> None:
        """Take in what is new; well under a millisecond."""
        with self._lock:
            self._poll()

    def _poll(self) -> None:
        if self._fd is None:
            return
        for _ in range(MAX_RECORDS_PER_POLL):
            try:
                record = os.read(self._fd, RECORD_BYTES)
            except BlockingIOError:
                return
            except BrokenPipeError:  # the kernel overwrote what was not yet read: it goes on with the oldest there is
                continue
            except OSError as error:
                self.problem = f"{KMSG}: {error.strerror}"
                self._close()
                return
            if not record:
                return
            line = line_of(record)
            if line is not None:
                self._lines.append(line)

    def lines(self, *, timeout_s: float, host: LiveHost | None = None) -> tuple[str, ...]:
        """All lines since the job began, with times, oldest first.

        Raises:
            FactUnavailable: neither the log nor `dmesg` may be read; has the reason.
        """
        with self._lock:
            self._poll()
            if self._fd is not None:
                return tuple(self._lines)
        try:
            text = (host or LiveHost()).run(["dmesg", "--time-format", "iso"], timeout_s=timeout_s)
        except FactUnavailable as error:
            raise FactUnavailable("kernel log: {problem}; {error}", problem=self.problem, error=error) from error
        return tuple(line for line in text.splitlines()[-MAX_LINES:] if self._is_new(line))

    def names_killed(self, pid: int, command: str) -> bool:
        """Whether a line shows that the OOM killer killed this process.

        Pids in the kernel's log are the machine's own: inside a container they mean nothing.
        """
        with self._lock:
            self._poll()
            lines = tuple(self._lines)
        return _is_initial_namespace() and any(is_oom_kill(line, pid, command) for line in lines)

    def close(self) -> None:
        """Close the log; lines taken in stay."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _is_new(self, line: str) -> bool:
        match = compiled(_DMESG_TIME).match(line)
        if match is None:
            return False
        try:
            at = datetime.fromisoformat(f"{match[1]}.{match[2][:6]}{match[3]}")
        except ValueError:
            return False
        return at.timestamp() >= self._since_s - 1.0


def line_of(record: bytes) -> str | None:
    """A record of /dev/kmsg as a line of `dmesg --time-format iso`; None when it is none."""
    match = compiled(_RECORD).match(record.partition(b"\n")[0].decode(errors="replace"))
    if match is None or len(match[1]) > 18:
        return None
    at_s = time.time() - time.monotonic() + int(match[1]) / 1e6
    try:
        when = datetime.fromtimestamp(at_s, UTC).isoformat(timespec="microseconds")
    except (OverflowError, ValueError, OSError):
        return None
    return f"{when.replace('.', ',')} {match[2]}"


def is_oom_kill(line: str, pid: int, command: str) -> bool:
    """Whether a line of the kernel shows that the OOM killer killed this process."""
    if not compiled(_OOM).search(line) or str(pid) not in compiled(_KILLED).findall(line):
        return False
    named = re.search(rf"\b{pid} \(([^)]*)\)|\b{pid},? ?name=(\S+)", line)
    return named is None or not command or (named[1] or named[2] or "")[:15] == command[:15]


def chosen(lines: Collection[str], pids: Collection[int]) -> tuple[str, ...]:
    """The lines that name one of these processes, or that a signature of the kernel knows; the last 400."""
    known = _known(lines)
    number = re.compile(r"(?<![\w.:-])(\d{1,10})(?![\w.:])")
    wanted = {str(pid) for pid in pids} if _is_initial_namespace() else set()
    found_lines = [
        line
        for i, line in enumerate(lines)
        if i in known or (wanted and not wanted.isdisjoint(number.findall(line.partition(" ")[2])))
    ]
    return tuple(found_lines[-MAX_CHOSEN:])


def _known(lines: Collection[str]) -> set[int]:
    """Which of the lines the readers of logs find an event of the kernel in."""
    from allready.evidence.lines.scan import scan
    from allready.evidence.log import interpret

    if not lines:
        return set()
    text = "".join(f"{' '.join(line.splitlines())}\n" for line in lines)
    reading = interpret(scan(io.BytesIO(text.encode()), source="kernel.log"), "kernel.log", mtime_s=None)
    return {
        event.origin.line - 1 for event in reading.events if event.origin.line is not None and event.family == "kernel"
    }


def _is_initial_namespace(readlink: Callable[[str], str] = os.readlink) -> bool:
    try:
        return readlink("/proc/self/ns/pid") == INITIAL_PID_NAMESPACE
    except OSError:
        return False
