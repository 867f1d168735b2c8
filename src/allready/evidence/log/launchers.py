"""Ends of processes in the words of launchers, shells, schedulers, kernels and of the dying process itself."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from allready.evidence.log import tracebacks
from allready.evidence.log.closing_words import tests
from allready.evidence.log.deaths import HYDRA, DeathDraft
from allready.evidence.log.line import Line
from allready.model.process import known_signal
from allready.patterns import has_one

MAX_TASKS = 4096
MAX_DIGITS = 7
MAX_LINES_NEAR = 6
MAX_LINES_BETWEEN = 60
"""Another thread that writes a message of torch with its stack: some thirty lines."""

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
_NUMBERS = ("rank", "local_rank", "task", "pid", "exit_code")


_CLOSING = (
    r"(?:Sending|Closing) process (?P<pid>\d{1,9}) (?:closing signal|via signal) (?:Signals\.)?(?P<signal>SIG\w{2,8})"
)
_FORCED = r"Unable to shutdown process (?P<pid>\d{1,9}) via \S{1,30}, forcefully exiting via (?P<signal>SIG\S{0,17})?"
_FAILED = (
    r"failed \(exitcode: (?P<exit_code>-?\d{1,10})\) local_rank: (?P<local_rank>\d{1,5}) \(pid: (?P<pid>\d{1,9})\)"
)
_CHILD = r"Child process with PID (?P<pid>\d{1,9}) terminated with code (?P<exit_code>-?\d{1,10})"
_WORKER = r"\bWorker \w{1,40} pid (?P<pid>\d{1,9}) died, exit code: (?P<exit_code>(?!-15\b|0\b)-?\d{1,10})"
_RETURNED = r"exits with return code = (?P<exit_code>-?\d{1,10})"
_ENDED = r"^# Ended \(code (?P<exit_code>[1-9]\d{0,2})\)"
_LSF = r"^Exited with (?:exit code (?P<exit_code>\d{1,3})|signal termination: (?:\d{1,3}|(?P<how>[\w ]{1,40})))\."
_SAID_CODE = (
    r"(?:(?:^|[\s\]:])(?:[Pp]rocess (?:finished|completed|exited|terminated) with (?:exit )?code|"
    r"[\w.\-]{1,80} (?:\| )?exited with code|"
    r"[Cc]ommand (?:failed|terminated|exited) with (?:exit|non-zero) (?:code|status)(?! 137)|"
    r"[Jj]ob failed: exit (?:code|status)|(?:script|Bash|[Cc]ommand) (?:returned exit code|exited with code))|"
    r"(?:^|[\]:]) {0,3}(?:\w{1,20} ){0,3}(?:[Rr]eturn|[Ee]xit)[ _]?(?:code|status) ?(?:was|is|[:=])) ?"
    r"[\[(']?(?P<exit_code>-?\d{1,10})[\])']?\.?"
    r"(?: \((?:interrupted by signal \d{1,3}: SIG\w{2,8}|0x[\dA-Fa-f]{8})\))?\s*$"
)
"""What a shell's wrapper, an editor, docker compose or a runner of CI writes last."""
_MAX_BEHIND_CODE = 3

_LOCAL_RANK = r"--local[-_]rank(?:=|', ?'|\", ?\"| )(\d{1,5})"
_SRUN = r"error: (?P<node>[\w.\-]{1,255}): tasks? (?P<tasks>[\d,\- ]{1,2000}): (?P<words>.{1,200})"
_SPAWNED = (
    r"process (?P<local_rank>\d{1,5}) terminated with "
    r"(?:signal (?P<signal>SIG\w{2,8})|exit code (?P<exit_code>-?\d{1,10}))"
)
_MPI = (
    r"(?:mpirun|prterun|mpiexec|orterun) noticed that process rank (?P<task>\d{1,7}) with PID "
    r"(?:(?P<pid>\d{1,9})|[xX*]{1,20}) "
    r"on node (?P<node>\S{1,255}) exited on\s{1,3}signal (?P<number>\d{1,3})"
)
_MPI_LEFT = (
    r"(?:mpirun|prterun|mpiexec|orterun) has exited due to process rank (?P<task>\d{1,7}) with PID "
    r"(?:(?P<pid>\d{1,9})|[xX*]{1,20}) on"
    r"(?:\s{1,3}node (?P<node>\S{1,255}))?"
)
_MPI_NAME = r"Process name: +\[(?:\[\d+,\d+\],|[\w.\-]+@\d+,)(?P<task>\d{1,7})\]"
_MPI_CODE = r"Exit code: +(-?\d{1,6})"
_MPI_ABORT = r"MPI_ABORT was invoked on rank (?P<task>\d{1,7})"
_MPICH_ABORT = r"application called MPI_Abort\(\w{1,60}, (?P<number>-?\d{1,10})\) - process (?P<task>\d{1,7})"
_ERROR_CODE = r"[Ww]ith errorcode (-?\d{1,9})"
_HYDRA = r"=\s+(?:RANK (?P<task>\d{1,7}) )?PID (?P<pid>\d{1,9}) RUNNING AT (?P<node>\S{1,255})"
_HYDRA_END = r"=\s+(?:KILLED BY SIGNAL: (\d{1,3})|EXIT CODE: (\d{1,6})|EXIT STATUS: (\d{1,6}))"
_OPAL = (
    r"\[(?P<host>[\w.\-]{1,255}):(?P<pid>\d{1,9})(?:"
    r"\] Signal: (?P<how>[A-Z][\w \-]{1,40}) \((?P<number>\d{1,3})\)|"
    r" {0,8}:\d{1,9}:\d{1,9}\] Caught signal (?P<ucx_number>\d{1,3}) \((?P<ucx_how>[^()]{1,120}(?:\([^()]{1,40}\))?)\))"
)
_OPAL_CODE = r"\] Signal code: {1,2}([A-Z][\w \-]{1,80}) \("
_OPAL_ADDRESS = r"\] Failing at address: (0x[\da-f]{1,16}|\(nil\))"
_HANDLER = (
    r"\*\*\* (?:Signal \d{1,3} \()?(?P<signal>SIG[A-Z]{2,6})\)?"
    r"(?: .{0,100}?received by PID (?P<pid>\d{1,9})\b| received at time=\d{1,20})"
)
_ORDERS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")
_ABSL_FATAL = r"F0000 00:00:\d{9,11}\.\d{1,9} {1,8}(\d{1,20}) ([^\s:\]\[]{1,300}:\d{1,7})\] ?(.*)"
_SHELL = rf": line \d{{1,7}}: +(?P<pid>\d{{1,9}}) (?P<name>{_NAMES})\b"
_ALONE = r"^(?P<name>Killed|Terminated|Segmentation fault|Bus error|Aborted)(?: \(core dumped\))?\s*$"
_KERNEL_KILL = r"(?:[Oo]ut of memory.{0,80}?Kill(?:ed)?|^Killed) process (?P<pid>\d{1,9}) \([^)]{0,64}\)"
_SEGFAULT = r"[^\s\[]{1,64}\[(?P<pid>\d{1,9})\](?:: segfault at| general protection)"
_OOM_STEP = r"[Dd]etected \d+ oom[_-]kill event"
_POD_ROW = r"(?P<node>[a-z0-9][a-z0-9.\-]{0,252}) +\d+/\d+ +OOMKilled\b"
_OOM_REASON = r"(?:[Rr]eason[\"']?\s*[:=]\s*[\"']?|^\s*|\bwas )OOMKilled\b"
_FATAL = r"Fatal Python error: ([^\n:]{1,100})"
_THREAD = r'\s*File "([^"]{1,1000})", line (\d{1,9}) in (.{1,200})'
_TERMINATE = r"terminate called after throwing an instance of '([^']{1,200})'"
_WHAT = r"\s*what\(\): +(.*)$"
_WORLD_RANK = r"\[PG (?:ID 0 PG GUID 0|0 )[^\]]{0,80}?Rank (\d{1,7})\]"
_HOROVOD = r"^Process (?P<rank>\d{1,7}) exit with status code (?P<exit_code>\d{1,3})\."
_PALS = (
    r"^(?P<node>[\w.\-]{1,255}): rank (?P<rank>\d{1,7}) "
    r"(?:died from signal (?P<number>\d{1,3})|exited with code (?P<exit_code>\d{1,3}))"
)
_PADDLE = r"^Container rank (?P<rank>\d{1,7}) status failed cmd .{0,4000}\] code (?P<exit_code>-?\d{1,10}) log "
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

    def preceding(self, most: int) -> list[Line]:
        """The lines before it of the same stream, the nearest first."""
        found: list[Line] = []
        for other in self.lines[max(0, self.at - 10 * most) : self.at][::-1]:
            if other.continues(self.line):
                found.append(other)
                if len(found) >= most:
                    break
        return found

    def joined(self, most: int) -> str:
        return "\n".join([self.text, *(other.rest[:500] for other in self.following(most))])


def local_rank_of(command: str) -> int | None:
    """The local rank that old launchers put into a process's arguments."""
    found = re.search(_LOCAL_RANK, command)
    return None if found is None else int(found[1])


def _made(here: _Here, match: re.Match[str], **fixed: Any) -> DeathDraft:
    """The statement of a match whose groups are named like its fields; `fixed` adds to them."""
    found: dict[str, Any] = {"text": here.text.strip()}
    for name, value in match.groupdict().items():
        if value is not None and name in DeathDraft.__struct_fields__:
            found[name] = int(value) if name in _NUMBERS else value
    found |= fixed
    found["pid"] = found.get("pid") or None  # 0: unknown to the launcher
    return DeathDraft(**{"kind": _kind_of(found.get("signal")), **found})


def _kind_of(signal: str | None) -> str:
    return "exit" if signal is None else "abort" if signal == "SIGABRT" else "signal"


def _form(pattern: str, **fixed: Any) -> "_Reader":
    """A reader of lines that say everything in the groups of one pattern."""

    def read(here: _Here) -> Iterable[DeathDraft]:
        match = re.search(pattern, here.text)
        if match is not None:
            yield _made(here, match, **fixed)

    return read


def _closing(here: _Here) -> Iterable[DeathDraft]:
    match = re.search(_CLOSING, here.text) or re.search(_FORCED, here.text)
    if match is not None:
        yield _made(here, match, kind="signal", signal=match["signal"] or "SIGKILL", by_launcher=True)


def _returned(here: _Here) -> Iterable[DeathDraft]:
    match = re.search(_RETURNED, here.text)
    if match is not None and match["exit_code"] != "0":
        # The command is always that of the node's last local rank, whichever failed: 0 tells that there is no other.
        is_only = local_rank_of(here.text) == 0
        text = here.text.strip()[-200:]
        yield _made(here, match, text=text, first=is_only, local_rank=0 if is_only else None)


def _spawned(here: _Here) -> Iterable[DeathDraft]:
    match = re.search(_SPAWNED, here.text)
    if match is not None:
        yield _made(here, match, kind="signal" if match["signal"] else "exit", first=True)


def is_spawned(text: str) -> bool:
    """Whether `torch.multiprocessing.spawn` says how a child ended that left no exception."""
    return re.match(_SPAWNED, text) is not None


def _srun(here: _Here) -> Iterable[DeathDraft]:
    match = re.search(_SRUN, here.text)
    made = None if match is None else _ended(match["words"])
    if match is not None and made is not None:
        kind, name, code = made
        for task in _ranges(match["tasks"]):
            yield _made(here, match, kind=kind, task=task, signal=name, exit_code=code, by_launcher=name == "SIGTERM")


def _ended(words: str) -> tuple[str, str | None, int | None] | None:
    code = re.match(r"Exited with exit code (\d{1,6})", words)
    if code is not None:
        return "exit", None, int(code[1])
    if words.startswith("Out Of Memory"):
        return "oom", "SIGKILL", None
    name = next((name for start, name in _SIGNALS.items() if words.startswith(start)), None)
    if name is None:
        return None
    return _kind_of(name), name, None


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


def _mpirun(here: _Here) -> Iterable[DeathDraft]:
    text = here.joined(3)
    match = re.search(_MPI, text)
    if match is not None:
        is_stopped = match["number"] == "15"
        yield _made(here, match, exit_code=-int(match["number"]), first=not is_stopped, by_launcher=is_stopped)
    if "detected that one or more processes exited" in here.text:
        text = here.joined(12)
        name, code = re.search(_MPI_NAME, text), re.search(_MPI_CODE, text)
        if name is not None and code is not None:
            yield _made(here, name, exit_code=int(code[1]), first=True)
    match = re.search(_MPI_LEFT, text)
    if match is not None:
        yield _made(here, match, first=True)
    match = re.search(_MPI_ABORT, here.text)
    if match is not None:
        code = re.search(_ERROR_CODE, here.joined(4))
        yield _made(here, match, exit_code=None if code is None else int(code[1]), first=True)
    match = re.search(_MPICH_ABORT, here.text)
    if match is not None:  # with 0 it ends all others just the same
        yield _made(here, match, exit_code=int(match["number"]) or None, first=True)


def _received(here: _Here) -> Iterable[DeathDraft]:
    """A handler of signals speaks in the process that got one: Open MPI's, UCX's, glog's, absl's; it ends there."""
    match = re.search(_OPAL, here.text)
    if match is not None:
        name = known_signal(int(match["number"] or match["ucx_number"]))
        if name is None or name in _ORDERS:
            return
        text = here.joined(3)
        code, address = re.search(_OPAL_CODE, text), re.search(_OPAL_ADDRESS, text)
        how: str = match["how"] or match["ucx_how"]
        how += f", {code[1].lower()}" if code is not None else ""
        how += f" at {address[1]}" if address is not None else ""
        words = "" if name == "SIGABRT" else how
        yield _made(here, match, task=here.line.prefix.task, signal=name, is_handlers=True, last_words=words)
        return
    match = re.search(_HANDLER, here.text)
    if match is not None and match["signal"] not in _ORDERS:
        yield _made(here, match, is_own=True, is_handlers=match["pid"] is not None)


def _hydra(here: _Here) -> Iterable[DeathDraft]:
    text = here.joined(12)  # some print an empty line after each
    process, end = re.search(_HYDRA, text), re.search(_HYDRA_END, text)
    if end is None:
        return
    number, code, status = end.groups()
    exit_code = int(number or code or status or 0)
    if number or exit_code in (6, 7, 9, 11, 15):  # old Hydra prints the wait status: 9 is signal 9
        exit_code = -exit_code
    if process is not None or exit_code:  # MPICH before 3.1 names no process
        yield _made(here, process or end, kind="exit", text=HYDRA, exit_code=exit_code, first=True)


def _shell(here: _Here) -> Iterable[DeathDraft]:
    match = re.search(_SHELL, here.text) or re.search(_ALONE, here.text)
    if match is not None:
        yield _made(here, match, signal=_SIGNALS[match["name"]])


def _said_code(here: _Here) -> Iterable[DeathDraft]:
    """The code that a wrapper of the program gives as the log's last word; further up it is of a step."""
    match = re.search(_SAID_CODE, here.text)
    if match is None or not int(match["exit_code"]) or here.lines[-1].number - here.line.number > _MAX_BEHIND_CODE:
        return
    behind = [line.rest for line in here.following(_MAX_BEHIND_CODE)]
    if not any(tests().search(text) and " failed" not in text for text in behind):  # else a test asked for it
        yield _made(here, match, kind="exit")


def _lsf(here: _Here) -> Iterable[DeathDraft]:
    """LSF's summary of a job, in its report at the end of the output; and the last line of Kaldi's logs."""
    match = re.search(_LSF, here.text) or re.search(_ENDED, here.text)
    if match is not None:
        code = int(match["exit_code"] or 0)
        before = here.lines[max(0, here.at - 4) : here.at]
        was_ended = any(line.rest.startswith("TERM_") for line in before)  # for its time or memory
        yield _made(
            here,
            match,
            kind="exit",
            by_launcher=was_ended,
            exit_code=code or None,
            signal=_SIGNALS.get(match.groupdict().get("how") or ""),
        )


def _kernel(here: _Here) -> Iterable[DeathDraft]:
    killed = re.search(_KERNEL_KILL, here.text)
    match = killed or re.search(_SEGFAULT, here.text)
    if match is not None:
        kind, name = ("oom", "SIGKILL") if killed is not None else ("signal", "SIGSEGV")
        yield _made(here, match, kind=kind, signal=name, host=here.line.prefix.host)


def _oom(here: _Here) -> Iterable[DeathDraft]:
    match = next((m for p in (_OOM_STEP, _POD_ROW, _OOM_REASON) if (m := re.search(p, here.text)) is not None), None)
    if match is not None:
        yield _made(here, match, kind="oom", signal="SIGKILL")


def _fatal_python(here: _Here) -> Iterable[DeathDraft]:
    match = re.search(_FATAL, here.text)
    if match is None:
        return
    name = _SIGNALS.get(match[1].strip(), "SIGABRT")
    frames = _dying_thread(here)
    yield _made(
        here,
        match,
        signal=name,
        is_own=True,
        site=tracebacks.innermost(frames),
        is_agents=tracebacks.is_of_launcher(frames),
    )


def _dying_thread(here: _Here) -> list[tuple[str, int, str]]:
    """The frames of the thread that faulthandler calls the current one.

    Where a thread of native code dies it calls none so: then the thread that runs the script, which stands last.
    """
    threads: list[list[tuple[str, int, str]]] = []
    is_current = False
    for other in here.following(400):
        text = other.rest
        if "(most recent call first)" in text:
            if is_current:
                break
            is_current = text.lstrip().startswith("Current thread")
            if is_current:
                threads.clear()
            threads.append([])
        frame = re.match(_THREAD, text)
        if frame is not None and threads:
            threads[-1].append((frame[1], int(frame[2]), frame[3]))
            other.is_understood = True
    scripts = [frames for frames in threads if frames and frames[-1][2] == "<module>"]
    return next(iter(scripts[-1:] or [frames for frames in threads if frames][-1:]), [])


def _pals(here: _Here) -> Iterable[DeathDraft]:
    """mpiexec of HPE's PALS: one line for each rank that ended badly, those that it stopped itself too."""
    match = re.search(_PALS, here.text)
    if match is not None and match["exit_code"] != "0":
        number = match["number"]
        code = -int(number) if number else int(match["exit_code"])
        yield _made(here, match, exit_code=code, by_launcher=number in ("9", "15"))


def _horovod(here: _Here) -> Iterable[DeathDraft]:
    match = re.search(_HOROVOD, here.text)
    if match is not None and match["exit_code"] != "0":
        yield _made(here, match)


def _terminate(here: _Here) -> Iterable[DeathDraft]:
    match = re.search(_TERMINATE, here.text)
    if match is None:
        return
    here_too = here.text.partition("what(): ")[2]
    words = here_too.strip() or _exception_text(here)
    rank = re.search(_WORLD_RANK, words)
    is_collective = tracebacks.Failure(match[1].replace("::", "."), words).is_collective_error
    yield DeathDraft(
        kind="abort",
        text=f"{match[1]}: {words}" if words else match[1],
        signal="SIGABRT",
        is_own=True,
        rank=None if rank is None else int(rank[1]),
        is_collective_error=is_collective or ("watchdog thread terminated" in words and "CUDA error" not in words),
        last_words=f"{match[1]}: {words}" if words else match[1],
    )


def _exception_text(here: _Here) -> str:
    """The exception's own words.

    Where processes share a file, first lines may stand before the words of both: the first to begin is the first to go
    on.  Many lines in between are a stack that another thread of the process wrote.
    """
    earlier = 0
    for other in reversed(here.preceding(MAX_LINES_NEAR)):
        if re.search(_TERMINATE, other.text):
            earlier += "what(): " not in other.text
        elif re.match(_WHAT, other.rest):
            earlier = max(0, earlier - 1)
    is_stack = False
    for at, other in enumerate(here.following(MAX_LINES_BETWEEN)):
        is_stack = is_stack or other.rest.startswith("frame #")
        if at >= MAX_LINES_NEAR and not is_stack:
            break
        said = re.match(_WHAT, other.rest)
        if said is not None and not earlier:
            return said[1]
        earlier -= said is not None
    return ""


def _checked(here: _Here) -> Iterable[DeathDraft]:
    """The fatal line of absl without a date, by which a check in a library ends its process."""
    match = re.search(_ABSL_FATAL, here.text)
    if match is not None:
        words = f"{match[2]}: {match[3].strip()}"
        yield DeathDraft(
            kind="abort",
            text=words,
            signal="SIGABRT",
            is_own=True,
            last_words=words,
            pid=int(match[1]) if len(match[1]) < 8 else None,
            is_collective_error=_lost_a_peer(words),
        )


def _lost_a_peer(words: str) -> bool:
    """Whether a check failed because of a library's message on another process."""
    return tracebacks.Failure("RuntimeError", words).is_collective_error


def _paddle(here: _Here) -> Iterable[DeathDraft]:
    """Paddle's launcher, below the last lines of the first rank's log."""
    match = re.search(_PADDLE, here.text)
    if match is not None:
        is_lost = any(_lost_a_peer(other.rest) for other in here.preceding(MAX_LINES_NEAR))
        yield _made(here, match, is_collective_error=is_lost)


def _own_end(here: _Here) -> Iterable[DeathDraft]:
    is_library = _ENDING in here.text or _DUMPING in here.text or any(mark in here.text for mark in _JAX_ENDS)
    if is_library or (here.line.prefix.kind == "glog" and here.line.prefix.level == "FATAL"):
        file = here.line.prefix.file or ""
        is_collective = is_library or "ProcessGroup" in file or _lost_a_peer(here.text)
        yield DeathDraft(
            kind="abort",
            text=here.text.strip(),
            is_own=True,
            is_collective_error=is_collective,
            last_words="" if is_collective else f"{file}: {here.text.strip()}",
        )


_Reader = Callable[[_Here], Iterable[DeathDraft]]
_READERS: tuple[tuple[tuple[str, ...], _Reader], ...] = (
    (("closing signal", "via signal", "forcefully exiting via"), _closing),
    (("failed (exitcode:",), _form(_FAILED, first=True)),
    (("Child process with PID",), _form(_CHILD, first=True)),
    ((" died, exit code: ",), _form(_WORKER, first=True)),
    (("exits with return code",), _returned),
    (("terminated with ",), _spawned),
    ((": task",), _srun),
    (
        (
            "noticed that process rank",
            "has exited due to process rank",
            "detected that one or more processes exited",
            "MPI_ABORT was",
            "called MPI_Abort(",
        ),
        _mpirun,
    ),
    (("] Signal: ", "] Caught signal ", "received by PID", "received at time="), _received),
    (("F0000 00:00:",), _checked),
    ((HYDRA,), _hydra),
    (("ill process", "illed process", ": segfault at", "general protection"), _kernel),
    (("oom_kill event", "oom-kill event", "OOMKilled"), _oom),
    (("Fatal Python error",), _fatal_python),
    (("terminate called after throwing",), _terminate),
    (("exit with status code",), _horovod),
    ((" died from signal ", " exited with code "), _pals),
    (("status failed cmd",), _paddle),
    ((" code", " status", "_code"), _said_code),
    (("Exited with exit code", "Exited with signal termination", "# Ended (code "), _lsf),
    ((": line ", "Killed", "Terminated", "Segmentation fault", "Bus error", "Aborted"), _shell),
)


def read(lines: Sequence[Line], at: int) -> list[DeathDraft]:
    """What `lines[at]` says of the end of a process; empty for nearly all lines."""
    here = _Here(lines, at)
    text = here.text
    found: list[DeathDraft] = []
    for marks, reader in _READERS:
        if has_one(marks, text):
            found += reader(here)
            if found:
                return found
    if here.line.prefix.level == "FATAL" or _ENDING in text or _DUMPING in text or has_one(_JAX_ENDS, text):
        found += _own_end(here)
    return found
