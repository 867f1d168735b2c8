"""Lines of stack dumps of any tool, one after another: a small state machine for each line's prefix."""

import re
from collections.abc import Callable
from typing import Any

from allready.evidence.stacks.threads import MAX_PROCESSES, OpenProcess, OpenThread
from allready.model import Frame
from allready.patterns import compiled

ANSI = r"\x1b\[[0-9;?]{0,12}[A-Za-z]"

_PYSPY_PROCESS = r"^Process (\d{1,10}): ?(.*)$"
_PYSPY_PARENT = r"^Parent Process (\d{1,10}):"
_PYSPY_PYTHON = r"^Python v\S+ \(.*\)$"
_PYSPY_THREAD = r'^Thread (0x[0-9A-Fa-f]{1,16}|\d{1,19})(?: \(((?:idle|active)?\+?(?:gil)?)\))?(?:: "(.*)")?$'
_PYSPY_LOCAL = r"^ {12}(global_rank|world_rank|GLOBAL_RANK|RANK): (\d{1,7})$"
_PYSPY_NOTE = r"^( {8}(Arguments|Locals):$| {12}\S| *-{8,}$)"

_FH_THREAD = r"^(Current thread|Thread|Stack)(?: (0x[0-9a-fA-F]{1,16}))?(?: \[(.*)\])? \(most recent call first\):$"
_FH_FRAME = r'^ {2}File "(.*)", line (\d{1,9}|\?\?\?),? in (.*)$'
_FH_PEER = r"^ {2}<peer=(\d{1,7}) group=(world|own)>$"
_FH_MEMBERS = r"^ {2}<members=((?:all|[\d,:-]{1,400})(?: name=\d{1,9})?)>$"
_FH_ENDLESS = "  <endless>"
_FH_START = r"^(Fatal Python error: .*|Timeout \(\d{1,6}:\d\d:\d\d(?:\.\d{1,9})?\)!)$"
_FH_NOTE = (
    r"^( {2}<no Python frame>| {2}<cannot get .*|Extension modules: .*|Current thread's C stack trace .*"
    r"| {2}Binary file .*|Python runtime state: .*|<(?:no Python|unable).*|Thread 0x\S+ \[\S*\]: .*)$"
)

_GDB_THREAD = r'^Thread (\d{1,9}) \((?:.{0,200}?(?:LWP|process) (\d{1,10}).{0,200})\)(?: ?"(.{0,100})")?:?$'
_GDB_FRAME = r"^#(\d{1,6})\s+(?:0x[0-9a-fA-F]{1,16}(?: in)? +)?(.+)$"
_GDB_PYTHON = r"Frame 0x[0-9a-f]+, for file (.{1,400}?), line (\d{1,9}), in ([\w<>.]{1,200})"
_GDB_PROCESS = r"^(?:Attaching to (?:process|program: .{1,300}?,? process) |PID )(\d{1,10})\b"
_EU_THREAD = r"^TID (\d{1,10}):$"
_GDB_NOTE = (
    r"^(\[New LWP .*|\[Thread debugging .*|Using host libthread_db .*|Traceback \(most recent call first\):"
    r"|\[Inferior .*|Reading symbols .*| {4}\S.*|Detaching from .*|warning: .*)$"
)

_KERNEL_FRAME = (
    r"^\[<(?:0|[0-9a-fA-F]{8,16})>\] (?:\(.\) )?([A-Za-z_][\w.]{0,120}|0xffffffff[0-9a-f]{8}|-1)"
    r"(?:\+0x[0-9a-f]{1,8}/0x[0-9a-f]{1,8})?(?: \[(\w{1,64})\])?$"
)

_ERROR = (
    r"^(?:Error: .*|Permission [Dd]enied.*|ptrace: .*|ptrace\(.*|Could not attach to process.*|Failed to .*"
    r"|No such process.*|Unable to attach.*|cat: /proc/\d+/.*|.*py-spy: (?:command )?not found.*"
    r"|.*: No such process.*)$"
)
_REASON = r"^(?:Reason: | {4}(?:\d: )?(?=\S))(.*)$"
_BACKTRACE = (
    r"^(?:Caused by:|Stack backtrace:| {1,3}\d{1,3}: .*| {13}at .*|It looks like you are running in a docker.*)$"
)

_PROC_PATH = r"/proc/(\d{1,10})/"
_HEAD_PID = r"\b(?:pid|PID|process)[ =:#]{1,3}(\d{1,10})\b"
_HEAD_RANK = r"(?i)(?<![\w-])(?:global[ _-])?rank[ =:#_-]{0,3}(\d{1,7})\b"
_HEAD_LOCAL = r"(?i)\blocal[ _-]?rank[ =:#_-]{0,3}(\d{1,7})\b"
_HEAD_HOST = r"(?i)\b(?:host(?:name)?|node)[ =:]{1,3}([A-Za-z][\w.-]{0,254}|\d{1,3}(?:\.\d{1,3}){3})"
_HEADER = r"(?i)^(\W{1,12}\s*)?\b(?:rank|global|local|pid|process|host|hostname|node|/?proc)\b|/proc/\d+/|==> .* <=="

_PARTS = {"idle": "idle", "active": "active"}


class StackLines:
    """Takes the lines of one writer; what they say of processes is in `processes`."""

    def __init__(self, processes: list[OpenProcess], rank: int | None = None, local_rank: int | None = None) -> None:
        self.processes = processes
        self.rank = rank
        self.local_rank = local_rank
        self.process: OpenProcess | None = None
        self.thread: OpenThread | None = None
        self.pending: dict[str, Any] = {}  # what header lines say of the next process
        self.in_error = False
        self._takers: tuple[Callable[[str, int], bool], ...] = (
            self._pyspy,
            self._faulthandler,
            self._native,
            self._kernel,
            self._error,
            self._header,
        )

    def take(self, line: str, number: int) -> bool:
        """One line without its end; whether it was understood."""
        return any(taker(line, number) for taker in self._takers)

    def _begin(self, kind: str, number: int, *, pid: int | None = None, command: str = "") -> OpenProcess:
        known = {"rank": self.rank, "local_rank": self.local_rank} | self.pending
        if pid is not None:
            known["pid"] = pid
        self.process = OpenProcess(line=number, kind=kind, command=command, **known)
        self.pending = {}
        self.thread = None
        self.in_error = False
        if len(self.processes) < MAX_PROCESSES:
            self.processes.append(self.process)
        return self.process

    def _of_kind(self, kind: str, number: int) -> OpenProcess:
        """The process whose dump goes on, or a new one."""
        opened = self.process
        if opened is not None and opened.kind == "py-spy" and not opened.threads and opened.error is None:
            opened.kind = kind  # only its head has been read: any tool's stack may follow it
        if self.process is None or self.process.kind != kind or self.pending:
            return self._begin(kind, number)
        return self.process

    def _pyspy(self, line: str, number: int) -> bool:
        if match := compiled(_PYSPY_PROCESS).match(line):
            self._begin("py-spy", number, pid=int(match.group(1)), command=match.group(2).strip())
        elif match := compiled(_PYSPY_PARENT).match(line):
            if self.process is not None:
                self.process.parent = int(match.group(1))
        elif match := compiled(_PYSPY_THREAD).match(line):
            state = match.group(2) or ""
            kind = "gil" if "gil" in state else _PARTS.get(state, "")
            thread = OpenThread(name=(match.group(3) or "")[:200], state=kind, ident=match.group(1))
            self.thread = self._of_kind("py-spy", number).begin(thread)
        elif self.process is not None and self.process.kind == "py-spy" and self.thread is not None:
            if match := compiled(_PYSPY_LOCAL).match(line):
                if self.process.rank is None:
                    self.process.rank = int(match.group(2))
                return True
            if compiled(_PYSPY_NOTE).match(line):
                return True
            frame = _pyspy_frame(line)
            if frame is None:
                return False
            self.thread.add(frame)
        else:
            return bool(compiled(_PYSPY_PYTHON).match(line) or re.match(r"^ *-{8,}$", line))
        return True

    def _faulthandler(self, line: str, number: int) -> bool:
        if compiled(_FH_START).match(line):
            self._begin("faulthandler", number)
        elif match := compiled(_FH_THREAD).match(line):
            process = self._of_kind("faulthandler", number)
            ident = (match.group(2) or "").lower()
            again = bool(ident) and any(t.ident == ident for t in process.threads)
            if again or process.has_main():
                process = self._begin("faulthandler", number)
            name = match.group(3) or ident
            self.thread = process.begin(OpenThread(name=name[:200], ident=ident))
        elif match := compiled(_FH_FRAME).match(line):
            if self.thread is None:
                return False
            at = int(match.group(2)) if match.group(2).isdecimal() else None
            self.thread.add(Frame(function=match.group(3)[:200], file=match.group(1)[-400:], line=at))
        elif (match := compiled(_FH_PEER).match(line)) and self.thread is not None:
            self.thread.peer, self.thread.has_peer_group = int(match.group(1)), match.group(2) == "own"
        elif (match := compiled(_FH_MEMBERS).match(line)) and self.thread is not None:
            self.thread.makes = match.group(1)
        elif line == _FH_ENDLESS and self.thread is not None:
            self.thread.is_endless = True
        elif line == "  ..." and self.thread is not None:
            self.thread.is_cut = True
        else:
            return bool(compiled(_FH_NOTE).match(line))
        return True

    def _native(self, line: str, number: int) -> bool:
        if match := compiled(_GDB_PROCESS).match(line):
            self._begin("gdb", number, pid=int(match.group(1)))
        elif (match := compiled(_GDB_THREAD).match(line)) or (match := compiled(_EU_THREAD).match(line)):
            process = self._of_kind("gdb", number)
            is_gdb = match.re is compiled(_GDB_THREAD)
            lwp = match.group(2 if is_gdb else 1) or ""
            name = (match.group(3) if is_gdb else None) or f"LWP {lwp}"
            is_main = lwp == str(process.pid) or (is_gdb and match.group(1) == "1")
            self.thread = process.begin(OpenThread(name=name, ident=lwp, is_main=is_main))
        elif match := compiled(_GDB_FRAME).match(line):
            if _is_call_site(match.group(2)):
                return True
            process = self._of_kind("gdb", number)
            if self.thread is None or (match.group(1) == "0" and self.thread.frames):
                self.thread = process.begin(OpenThread(name=""))
            self.thread.add(_gdb_frame(match.group(2)))
        else:
            return self.process is not None and self.process.kind == "gdb" and bool(compiled(_GDB_NOTE).match(line))
        return True

    def _kernel(self, line: str, number: int) -> bool:
        match = compiled(_KERNEL_FRAME).match(line.strip())
        if match is None:
            return False
        if self.process is None or self.process.kind != "kernel" or self.pending:
            before = self.process.pid if self.process is not None and not self.pending else None
            process = self._begin("kernel", number, pid=before)
            self.thread = process.begin(OpenThread(name="kernel", ident=str(process.pid or "")))
        assert self.thread is not None
        if match.group(1) != "-1" and not match.group(1).startswith("0xffffffff"):
            self.thread.add(Frame(function=match.group(1), file=f"[{match.group(2)}]" if match.group(2) else "kernel"))
        return True

    def _error(self, line: str, number: int) -> bool:
        if self.in_error and (match := compiled(_REASON).match(line)):
            reason = match.group(1).strip()[:200]
            if self.process is not None and self.process.error is not None and reason not in self.process.error:
                self.process.error = f"{self.process.error} ({reason})"[:500]
            return True
        if self.in_error and compiled(_BACKTRACE).match(line):
            return True
        if not compiled(_ERROR).match(line):
            return False
        path = compiled(_PROC_PATH).search(line) or re.search(r"\b(?:process|pid) (\d{1,10})\b", line)
        pid = int(path.group(1)) if path else None
        if self.process is None or self.process.threads or self.process.error or self.pending:
            self._begin("py-spy", number, pid=pid)
        assert self.process is not None
        self.process.error = line.strip().removeprefix("Error: ")[:300]
        self.in_error = True
        return True

    def _header(self, line: str, number: int) -> bool:  # noqa: ARG002 -- one signature for all
        if len(line) > 300 or not compiled(_HEADER).search(line):
            return False
        found: dict[str, Any] = {}
        for name, pattern in (("pid", _PROC_PATH), ("pid", _HEAD_PID), ("local_rank", _HEAD_LOCAL)):
            if match := compiled(pattern).search(line):
                found.setdefault(name, int(match.group(1)))
        if match := compiled(_HEAD_RANK).search(compiled(_HEAD_LOCAL).sub("", line)):
            found["rank"] = int(match.group(1))
        if match := compiled(_HEAD_HOST).search(line):
            found["host"] = match.group(1)
        if not found:
            return False
        self.pending |= found
        return True


def _pyspy_frame(line: str) -> Frame | None:
    if not line.startswith("    ") or line[4:5] in {"", " "} or not line.endswith(")"):
        return None
    name, mark, where = line[4:-1].rpartition(" (")
    if not mark:
        return None
    file, colon, number = where.rpartition(":")
    if colon and number.isdecimal() and len(number) < 10:
        return Frame(function=name[:200], file=file[-400:], line=int(number))
    return Frame(function=name[:200], file=where[-400:])


def _is_call_site(text: str) -> bool:
    """torch's watchdog tells so where the failed collective was called once: no process stands there."""
    _, mark, where = text.partition(" from ")
    return bool(mark) and where.rpartition(":")[2].isdecimal() and ":" in where


def _gdb_frame(text: str) -> Frame:
    if python := compiled(_GDB_PYTHON).search(text):
        return Frame(function=python.group(3), file=python.group(1), line=int(python.group(2)))
    source = re.search(r" at ([^\s()]{1,400}):(\d{1,9})$", text)
    library = re.search(r" (?:from|-) ([^\s()]{1,400})$", text)
    name = re.split(r" \(| from | at | - ", text, maxsplit=1)[0].strip()
    name = re.sub(r"@@?[A-Z][\w.]*$", "", name)
    if source:
        return Frame(function=name[:200], file=source.group(1), line=int(source.group(2)))
    return Frame(function=name[:200], file=library.group(1) if library else "")
