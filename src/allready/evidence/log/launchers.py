"""Ends of processes in the words of launchers, shells, schedulers, kernels and of the dying process itself."""

import re
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from allready.evidence.log import tracebacks
from allready.evidence.log.deaths import signal_name
from allready.evidence.log.line import Line

MAX_TASKS = 4096
MAX_DIGITS = 7

_SIGNALS = {
    "Killed": "SIGKILL",
    "Terminated": "SIGTERM",
    "Segmentation fault": "SIGSEGV",
    "Bus error": "SIGBUS",
    "Aborted": "SIGABRT",
    "Illegal instruction": "SIGILL",
    "Floating point exception": "SIGFPE",
    "Floating-point exception": "SIGFPE",
    "Interrupt": "SIGINT",
    "Hangup": "SIGHUP",
}
_NAMES = "|".join(_SIGNALS)


class Statement(Struct, kw_only=True):
    """What one line (or block) says; the identity of the process only as far as the words name it."""

    kind: str
    text: str
    rank: int | None = None
    local_rank: int | None = None
    task: int | None = None
    pid: int | None = None
    host: str | None = None
    node: str | None = None
    signal: str | None = None
    exit_code: int | None = None
    by_launcher: bool = False
    first: bool = False
    is_own: bool = False  # the writer of the line speaks of itself
    is_agents: bool = False  # of a launcher, of no rank
    is_collective_error: bool = False
    is_handlers: bool = False  # written by a handler of signals in the process that got one
    site: str | None = None
    words: str = ""  # why, in the words of the process


_CLOSING = r"(?:Sending|Closing) process (\d{1,9}) (?:closing signal|via signal) (?:Signals\.)?(SIG\w{2,8})"
_FORCED = r"Unable to shutdown process (\d{1,9}) via \S{1,30}, forcefully exiting via (\S{1,20})"
_FAILED = r"failed \(exitcode: (-?\d{1,6})\) local_rank: (\d{1,5}) \(pid: (\d{1,9})\)"
_CHILD = r"(?:\[rank: (\d{1,7})\] )?Child process with PID (\d{1,9}) terminated with code (-?\d{1,6})"
_RETURNED = r"exits with return code = (-?\d{1,6})"
_LOCAL_RANK = r"--local[-_]rank(?:=|', ?'|\", ?\"| )(\d{1,5})"
_SRUN = r"error: ([\w.\-]{1,255}): tasks? ([\d,\- ]{1,2000}): (.{1,200})"
_SPAWNED = r"process (\d{1,5}) terminated with (?:signal (SIG\w{2,8})|exit code (-?\d{1,6}))"
_MPI = (
    r"(?:mpirun|prterun|mpiexec|orterun) noticed that process rank (\d{1,7}) with PID (\d{1,9}) on node (\S{1,255}) "
    r"exited on\s{1,3}signal (\d{1,3})"
)
_MPI_LEFT = (
    r"(?:mpirun|prterun|mpiexec|orterun) has exited due to process rank (\d{1,7}) with PID (\d{1,9}) on"
    r"(?:\s{1,3}node (\S{1,255}))?"
)
_MPI_NAME = r"Process name: +\[(?:\[\d+,\d+\],|[\w.\-]+@\d+,)(\d{1,7})\]"
_MPI_CODE = r"Exit code: +(-?\d{1,6})"
_MPI_ABORT = r"MPI_ABORT was invoked on rank (\d{1,7})"
_ERROR_CODE = r"[Ww]ith errorcode (-?\d{1,9})"
_HYDRA = r"=\s+(?:RANK (\d{1,7}) )?PID (\d{1,9}) RUNNING AT (\S{1,255})"
_HYDRA_END = r"=\s+(?:KILLED BY SIGNAL: (\d{1,3})|EXIT CODE: (\d{1,6})|EXIT STATUS: (\d{1,6}))"
_OPAL = (
    r"\[([\w.\-]{1,255}):(\d{1,9})\] Signal: ([A-Z][\w \-]{1,40}) \((\d{1,3})\)|"
    r"\[([\w.\-]{1,255}):(\d{1,9}) {0,8}:\d{1,9}:\d{1,9}\] Caught signal (\d{1,3}) "
    r"\(([^()]{1,120}(?:\([^()]{1,40}\))?)\)"
)
_OPAL_CODE = r"\] Signal code: {1,2}([A-Z][\w \-]{1,80}) \("
_OPAL_ADDRESS = r"\] Failing at address: (0x[\da-f]{1,16}|\(nil\))"
_HANDLER = (
    r"\*\*\* (?:Signal \d{1,3} \()?(SIG[A-Z]{2,6})\)?"
    r"(?: .{0,100}?received by PID (\d{1,9})\b| received at time=\d{1,20})"
)
_ORDERS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")
_ABSL_FATAL = r"F0000 00:00:\d{9,11}\.\d{1,9} {1,8}(\d{1,20}) ([^\s:\]\[]{1,300}:\d{1,7})\] ?(.*)"
_SHELL = rf": line \d{{1,7}}: +(\d{{1,9}}) ({_NAMES})\b"
_ALONE = r"(Killed|Segmentation fault|Bus error|Aborted)(?: \(core dumped\))?\s*$"
_KERNEL_KILL = r"[Oo]ut of memory.{0,80}?Kill(?:ed)? process (\d{1,9}) \(([^)]{0,64})\)"
_KERNEL_KILL_OLD = r"^Killed process (\d{1,9}) \(([^)]{0,64})\)"
_SEGFAULT = r"(?:traps: )?([^\s\[]{1,64})\[(\d{1,9})\](?:: segfault at| general protection)"
_OOM_STEP = r"[Dd]etected \d+ oom[_-]kill event"
_POD_ROW = r"([a-z0-9][a-z0-9.\-]{0,252}) +\d+/\d+ +OOMKilled\b"
_OOM_REASON = r"(?:[Rr]eason[\"']?\s*[:=]\s*[\"']?|^\s*|\bwas )OOMKilled\b"
_FATAL = r"Fatal Python error: ([^\n:]{1,100})"
_THREAD = r'\s*File "([^"]{1,1000})", line (\d{1,9}) in (.{1,200})'
_TERMINATE = r"terminate called after throwing an instance of '([^']{1,200})'"
_WHAT = r"\s*what\(\): +(.*)$"
_WORLD_RANK = r"\[PG (?:ID 0 PG GUID 0|0 )[^\]]{0,80}?Rank (\d{1,7})\]"
_HOROVOD = r"^Process (\d{1,7}) exit with status code (\d{1,3})\."
_PALS = r"^([\w.\-]{1,255}): rank (\d{1,7}) (?:died from signal (\d{1,3})|exited with code (\d{1,3}))"
_DUMPING = "Terminating the process after attempting to dump debug info"
_JAX_ENDS = ("JAX distributed service detected", "coordinator detected missing heartbeats")
_ENDING = "taking the entire process down"


class _Here(Struct):
    """A line among the others."""

    lines: Sequence[Line]
    at: int

    @property
    def line(self) -> Line:
        return self.lines[self.at]

    @property
    def text(self) -> str:
        return self.lines[self.at].rest

    def following(self, most: int) -> Iterable[Line]:
        """The next lines of the same stream."""
        taken = 0
        for other in self.lines[self.at + 1 : self.at + 1 + 10 * most]:
            if other.continues(self.line):
                yield other
                taken += 1
                if taken >= most:
                    return

    def joined(self, most: int) -> str:
        return "\n".join([self.text, *(other.rest[:500] for other in self.following(most))])


def local_rank_of(command: str) -> int | None:
    """The local rank that old launchers put into a process's arguments."""
    found = re.search(_LOCAL_RANK, command)
    return None if found is None else int(found[1])


def _closing(here: _Here) -> Iterable[Statement]:
    for pattern, default in ((_CLOSING, "SIGTERM"), (_FORCED, "SIGKILL")):
        match = re.search(pattern, here.text)
        if match is not None:
            name = match[2] if match[2].startswith("SIG") else default
            yield Statement(kind="signal", text=here.text.strip(), pid=int(match[1]), signal=name, by_launcher=True)


def _failed(here: _Here) -> Iterable[Statement]:
    match = re.search(_FAILED, here.text)
    if match is not None:
        yield Statement(
            kind="exit",
            text=here.text.strip(),
            exit_code=int(match[1]),
            local_rank=int(match[2]),
            pid=int(match[3]),
            first=True,
        )
    match = re.search(_CHILD, here.text)
    if match is not None:
        yield Statement(
            kind="exit",
            text=here.text.strip(),
            pid=int(match[2]),
            exit_code=int(match[3]),
            first=True,
        )
    match = re.search(_RETURNED, here.text)
    if match is not None and match[1] != "0":
        # The command is always that of the node's last local rank, whichever failed: 0 tells that there is no other.
        is_only = local_rank_of(here.text) == 0
        yield Statement(
            kind="exit",
            text=here.text.strip()[-200:],
            exit_code=int(match[1]),
            first=is_only,
            local_rank=0 if is_only else None,
        )
    match = re.search(_SPAWNED, here.text)
    if match is not None:
        yield Statement(
            kind="signal" if match[2] else "exit",
            text=here.text.strip(),
            local_rank=int(match[1]),
            signal=match[2],
            exit_code=None if match[3] is None else int(match[3]),
            first=True,
        )


def is_spawned(text: str) -> bool:
    """Whether `torch.multiprocessing.spawn` says how a child ended that left no exception."""
    return re.match(_SPAWNED, text) is not None


def _srun(here: _Here) -> Iterable[Statement]:
    match = re.search(_SRUN, here.text)
    if match is None:
        return
    node, tasks, words = match.groups()
    made = _ended(words)
    if made is None:
        return
    kind, name, code = made
    for task in _ranges(tasks):
        yield Statement(
            kind=kind,
            text=here.text.strip(),
            node=node,
            task=task,
            signal=name,
            exit_code=code,
            by_launcher=name == "SIGTERM",
        )


def _ended(words: str) -> tuple[str, str | None, int | None] | None:
    code = re.match(r"Exited with exit code (\d{1,6})", words)
    if code is not None:
        return "exit", None, int(code[1])
    if words.startswith("Out Of Memory"):
        return "oom", "SIGKILL", None
    name = next((name for start, name in _SIGNALS.items() if words.startswith(start)), None)
    if name is None:
        return None
    return ("abort" if name == "SIGABRT" else "signal"), name, None


def _ranges(text: str) -> list[int]:
    """`0-2,5` -> 0, 1, 2, 5."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (last.isdigit() or not last):
            if len(first) > MAX_DIGITS:
                continue  # no job has so many tasks
            found += range(int(first), min(int(last or first), int(first) + MAX_TASKS) + 1)
        if len(found) >= MAX_TASKS:
            break
    return found[:MAX_TASKS]


def _mpirun(here: _Here) -> Iterable[Statement]:
    text = here.joined(3)
    match = re.search(_MPI, text)
    if match is not None:
        rank, pid, node, number = match.groups()
        yield Statement(
            kind="exit",
            text=here.text.strip(),
            task=int(rank),
            pid=int(pid) or None,
            node=node,
            exit_code=-int(number),
            first=number != "15",
            by_launcher=number == "15",
        )
    if "detected that one or more processes exited" in here.text:
        text = here.joined(12)
        name, code = re.search(_MPI_NAME, text), re.search(_MPI_CODE, text)
        if name is not None and code is not None:
            yield Statement(kind="exit", text=here.text.strip(), task=int(name[1]), exit_code=int(code[1]), first=True)
    match = re.search(_MPI_LEFT, text)
    if match is not None:
        yield Statement(
            kind="exit",
            text=here.text.strip(),
            task=int(match[1]),
            pid=int(match[2]) or None,
            node=match[3],
            first=True,
        )
    match = re.search(_MPI_ABORT, here.text)
    if match is not None:
        code = re.search(_ERROR_CODE, here.joined(4))
        yield Statement(
            kind="exit",
            text=here.text.strip(),
            task=int(match[1]),
            exit_code=None if code is None else int(code[1]),
            first=True,
        )


def _received(here: _Here) -> Iterable[Statement]:
    """A handler of signals speaks in the process that got one: Open MPI's, UCX's, glog's, absl's; it ends there."""
    match = re.search(_OPAL, here.text)
    if match is not None:
        host, pid, number = match[1] or match[5], match[2] or match[6], match[4] or match[7]
        name = signal_name(int(number))
        if name is None or name in _ORDERS:
            return
        text = here.joined(3)
        code, address = re.search(_OPAL_CODE, text), re.search(_OPAL_ADDRESS, text)
        how = match[3] or match[8]
        how += f", {code[1].lower()}" if code is not None else ""
        how += f" at {address[1]}" if address is not None else ""
        yield Statement(
            kind="abort" if name == "SIGABRT" else "signal",
            text=here.text.strip(),
            task=here.line.prefix.task,
            pid=int(pid),
            host=host,
            signal=name,
            is_handlers=True,
            words="" if name == "SIGABRT" else how,
        )
        return
    match = re.search(_HANDLER, here.text)
    if match is not None and match[1] not in _ORDERS:
        yield Statement(
            kind="abort" if match[1] == "SIGABRT" else "signal",
            text=here.text.strip(),
            is_own=True,
            pid=None if match[2] is None else int(match[2]),
            signal=match[1],
            is_handlers=match[2] is not None,
        )


def _hydra(here: _Here) -> Iterable[Statement]:
    text = here.joined(12)  # some print an empty line after each
    who, end = re.search(_HYDRA, text), re.search(_HYDRA_END, text)
    if end is None:
        return
    number, code, status = end.groups()
    exit_code = -int(number) if number else _shell_code(int(code or status or 0))
    if who is None:  # MPICH before 3.1 names nobody
        if exit_code:
            yield Statement(kind="exit", text=here.text.strip(" ="), exit_code=exit_code, first=True)
        return
    yield Statement(
        kind="exit",
        text=here.text.strip(" ="),
        task=None if who[1] is None else int(who[1]),
        pid=int(who[2]),
        node=who[3],
        exit_code=exit_code,
        first=True,
    )


def _shell_code(code: int) -> int:
    """Old Hydra prints the wait status: 9 is signal 9."""
    return -code if code in (6, 7, 9, 11, 15) else code


def _shell(here: _Here) -> Iterable[Statement]:
    match = re.search(_SHELL, here.text)
    if match is not None:
        name = _SIGNALS[match[2]]
        yield Statement(
            kind="abort" if name == "SIGABRT" else "signal", text=here.text.strip(), pid=int(match[1]), signal=name
        )
        return
    match = re.match(_ALONE, here.text)
    if match is not None:
        name = _SIGNALS[match[1]]
        yield Statement(kind="abort" if name == "SIGABRT" else "signal", text=here.text.strip(), signal=name)


def _kernel(here: _Here) -> Iterable[Statement]:
    match = re.search(_KERNEL_KILL, here.text) or re.search(_KERNEL_KILL_OLD, here.text)
    if match is not None:
        yield Statement(
            kind="oom", text=here.text.strip(), pid=int(match[1]), host=here.line.prefix.host, signal="SIGKILL"
        )
        return
    match = re.search(_SEGFAULT, here.text)
    if match is not None:
        yield Statement(
            kind="signal", text=here.text.strip(), pid=int(match[2]), host=here.line.prefix.host, signal="SIGSEGV"
        )


def _oom(here: _Here) -> Iterable[Statement]:
    if re.search(_OOM_STEP, here.text) is not None:
        yield Statement(kind="oom", text=here.text.strip(), signal="SIGKILL")
        return
    row = re.search(_POD_ROW, here.text)
    if row is not None or re.search(_OOM_REASON, here.text) is not None:
        yield Statement(kind="oom", text=here.text.strip(), node=None if row is None else row[1], signal="SIGKILL")


def _fatal_python(here: _Here) -> Iterable[Statement]:
    match = re.search(_FATAL, here.text)
    if match is None:
        return
    name = _SIGNALS.get(match[1].strip(), "SIGABRT")
    frames: list[tuple[str, int, str]] = []
    is_current = False
    for other in here.following(120):
        text = other.rest
        if "(most recent call first)" in text:
            if frames:
                break
            is_current = text.lstrip().startswith(("Current thread", "Thread"))
        frame = re.match(_THREAD, text)
        if frame is not None and is_current:
            frames.append((frame[1], int(frame[2]), frame[3]))
            other.is_understood = True
    yield Statement(
        kind="abort" if name == "SIGABRT" else "signal",
        text=here.text.strip(),
        signal=name,
        is_own=True,
        site=tracebacks.innermost(frames),
        is_agents=tracebacks.is_of_launcher(frames),
    )


def _horovod(here: _Here) -> Iterable[Statement]:
    match = re.search(_HOROVOD, here.text)
    if match is not None and match[2] != "0":
        yield Statement(kind="exit", text=here.text.strip(), rank=int(match[1]), exit_code=int(match[2]))


def _pals(here: _Here) -> Iterable[Statement]:
    """mpiexec of HPE's PALS: one line for each rank that ended badly, those that it stopped itself too."""
    match = re.search(_PALS, here.text)
    if match is not None and match[4] != "0":
        yield Statement(
            kind="exit",
            text=here.text.strip(),
            rank=int(match[2]),
            node=match[1],
            exit_code=-int(match[3]) if match[3] else int(match[4]),
            by_launcher=match[3] in ("9", "15"),
        )


def _terminate(here: _Here) -> Iterable[Statement]:
    match = re.search(_TERMINATE, here.text)
    if match is None:
        return
    here_too = here.text.partition("what(): ")[2]
    words = here_too.strip() or next((w[1] for o in here.following(6) if (w := re.match(_WHAT, o.rest))), "")
    rank = re.search(_WORLD_RANK, words)
    is_collective = tracebacks.Failure(match[1].replace("::", "."), words).is_collective_error
    yield Statement(
        kind="abort",
        text=f"{match[1]}: {words}" if words else match[1],
        signal="SIGABRT",
        is_own=True,
        rank=None if rank is None else int(rank[1]),
        is_collective_error=is_collective or ("watchdog thread terminated" in words and "CUDA error" not in words),
        words=f"{match[1]}: {words}" if words else match[1],
    )


def _checked(here: _Here) -> Iterable[Statement]:
    """The fatal line of absl without a date, by which a check in a library ends its process."""
    match = re.search(_ABSL_FATAL, here.text)
    if match is not None:
        words = f"{match[2]}: {match[3].strip()}"
        yield Statement(
            kind="abort",
            text=words,
            signal="SIGABRT",
            is_own=True,
            words=words,
            pid=int(match[1]) if len(match[1]) < 8 else None,
            is_collective_error=_lost_a_peer(words),
        )


def _lost_a_peer(words: str) -> bool:
    """Whether a check failed because of what a library said of somebody else."""
    return tracebacks.Failure("RuntimeError", words).is_collective_error


def _own_end(here: _Here) -> Iterable[Statement]:
    is_library = _ENDING in here.text or _DUMPING in here.text or any(mark in here.text for mark in _JAX_ENDS)
    if is_library or (here.line.prefix.kind == "glog" and here.line.prefix.level == "FATAL"):
        file = here.line.prefix.file or ""
        is_collective = is_library or "ProcessGroup" in file or _lost_a_peer(here.text)
        yield Statement(
            kind="abort",
            text=here.text.strip(),
            is_own=True,
            is_collective_error=is_collective,
            words="" if is_collective else f"{file}: {here.text.strip()}",
        )


_Reader = Callable[[_Here], Iterable[Statement]]
_READERS: tuple[tuple[tuple[str, ...], _Reader], ...] = (
    (("closing signal", "via signal", "forcefully exiting via"), _closing),
    (("failed (exitcode:", "Child process with PID", "exits with return code", "terminated with "), _failed),
    ((": task",), _srun),
    (
        (
            "noticed that process rank",
            "has exited due to process rank",
            "detected that one or more processes exited",
            "MPI_ABORT was",
        ),
        _mpirun,
    ),
    (("] Signal: ", "] Caught signal ", "received by PID", "received at time="), _received),
    (("F0000 00:00:",), _checked),
    (("BAD TERMINATION OF ONE",), _hydra),
    (("ill process", "illed process", ": segfault at", "general protection"), _kernel),
    (("oom_kill event", "oom-kill event", "OOMKilled"), _oom),
    (("Fatal Python error",), _fatal_python),
    (("terminate called after throwing",), _terminate),
    (("exit with status code",), _horovod),
    ((" died from signal ", " exited with code "), _pals),
    ((": line ", "Killed", "Segmentation fault", "Bus error", "Aborted"), _shell),
)


def read(lines: Sequence[Line], at: int) -> list[Statement]:
    """What `lines[at]` says of anybody's end; empty for nearly all lines."""
    here = _Here(lines, at)
    text = here.text
    found: list[Statement] = []
    for marks, reader in _READERS:
        if any(mark in text for mark in marks):
            found += reader(here)
            if found:
                return found
    if here.line.prefix.level == "FATAL" or _ENDING in text or _DUMPING in text or any(m in text for m in _JAX_ENDS):
        found += _own_end(here)
    return found
