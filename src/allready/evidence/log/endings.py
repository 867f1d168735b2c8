"""Who died, put together from tracebacks, tables and single lines of one log."""

import itertools
import signal

from allready.evidence.log import launchers
from allready.evidence.log.context import LogContext
from allready.evidence.log.deaths import DeathDraft, merge
from allready.evidence.log.line import Line
from allready.evidence.log.tracebacks import MILD, Failure, Traceback
from allready.evidence.log.trouble import is_bad, is_of_a_library
from allready.evidence.log.writer import Writer
from allready.model import Death
from allready.patterns import compiled

MAX_DEATHS = 20_000
_ONLY_REPORTS = ("ChildFailedError", "SignalException", "CalledProcessError", "RendezvousGracefulExitError")
_OF_NOTEBOOKS = ("CellExecutionError", "PapermillExecutionError")
"""What runs a notebook raises, and prints the exception of the cell behind it."""

_MAX_FOLLOWING = 3
"""Ordinary lines behind a traceback that still stands last: what is printed at the door."""

_ENDED_ALONE = "Terminated"
_MAX_BACK = 80
_FAREWELL_BYTES = 200
_FAREWELL = (
    r"\s*(?:wandb: |swanlab: |COMET \w{4,8}: |\[?neptune\]?:? |ClearML |🏃 View run |🧪 View experiment |"
    r"warnings\.warn\(|\S{0,200}resource_tracker|srun: |slurmstepd: |make: \*\*\*|Command exited|"
    r"command terminated|(?:real|user|sys)\t|\^C|pdsh@|_?exit(?:ed|ing)?\b|[-=*_ ]{3,}$|terminate called|"
    r"\[[\w.\-]{1,255}:\d{1,9}\] |Terminated|Killed|Aborted|Segmentation fault|Bus error|"
    r"Received \S{1,20} death signal|Set the environment variable HYDRA_FULL_ERROR)"
)
"""What launchers, shells and helpers print when a process has ended."""

_MAX_NOISE = 12
_SAYS_NOTHING = r"^\s*(?:[A-Z][a-z]{1,20} ){0,3}[A-Za-z]{1,20}:\s*$|: no version information available \(required by "
"""A heading, and a note of the dynamic linker's on any program."""

_DEMANDS = (
    r"(?i)\b(?:must (?:not )?(?:be|have|match|use|contain|exist|give|set|specify)|(?:is|are) required|"
    r"requires? (?:at|a|an|the)|needs? (?:at least|to be)|at least \d{1,9}|"
    r"(?:no|not) (?:enough|such|supported|allowed|implemented|valid|available)|invalid|illegal|unsupported|"
    r"unknown (?:option|argument|parameter|keyword)|unrecognized|mismatch|does not (?:exist|match))\b"
)
"""What a program asks for when it refuses to work; said of nothing where it goes on."""

_REASON = (
    r"\S{1,200}: error: .|\S{1,300}: line \d{1,7}: syntax error |"
    r"\S{0,200}: can't open file .|.{0,200}: command not found\s*$|"
    r".{0,200}: (?:No such file or directory|Permission denied|cannot execute)\b|.{0,200}executable file not found|"
    r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)(?:: .|\s*$)"
)
"""Words of programs, shells and Python that say why a process ended, alone on a line."""

_WENT_ON = (
    r"(?i)\b(?:finished|done|completed?|saved|saving|retry(?:ing)?|trying again|continu(?:e|ing)|going on|"
    r"resum(?:e|ing)|skipp(?:ed|ing)|succe(?:ss|eded))\b"
)
_GOOD_END = (
    r"(?i)\b(?:training|job)(?: has| is| was)?(?: been)?(?: successfully)? (?:finished|done|completed?)\b|"
    r"Total training time|Destroy COMPLETE|successfully finished"
)
"""Words of an end that was meant; epochs and runs are completed all the time."""
_OF_A_PIPE = ("EOFError", "ConnectionResetError", "BrokenPipeError")
_PIPES = ("multiprocessing/connection.py", "multiprocessing/queues.py", "multiprocessing/managers.py")
_NEAR_A_CHILD = 400
_NEAR_A_PIPE = 60
"""Lines between an exception that ended a process and that of another one, which finds the pipe to it closed."""

_POINTS_UP = (
    r"(?i)\b(?:see|check) (?:the )?(?:root cause|stack ?trace|traceback|error|exception)s?\b"
    r".{0,30}\b(?:above|root cause)"
)
_TEST_FAILED = r"FAILED \((?:errors|failures)=\d{1,5}"
_GRAVE = ("ERROR", "FATAL")

_IGNORED = r"(?i)\b(?:ignor(?:ed|ing)|going on|continu(?:e|ing)|skipp(?:ed|ing)|retry(?:ing)?)\b"
_STEP = r"(?i)\b(?:step|iter|iteration|epoch|loss)\b[ :=/\[]{1,3}\d"
_ECHO = (
    r"Horovod has been shut down|Connection closed by peer|Connection reset by peer|Broken pipe|Socket closed|"
    r"NCCL error|srun: error|ChildFailedError|SignalException|CalledProcessError|RendezvousGracefulExitError|"
    r"slurmstepd: error: Failed to send "
)
"""What is printed because another process ended: no reason of this one."""

_COMMAND = (
    r"Command .{0,4000}?(?:died with <Signals\.(?P<name>SIG\w{2,8}): \d{1,3}>|"
    r"died with unknown signal (?P<signal>\d{1,3})|returned non-zero exit status (?P<code>-?\d{1,10}))"
)
_NAMES_THE_LAST = "torch/distributed/launch.py"
"""Before torchrun it gave the command that it had started last, whichever of its processes had failed."""

_STEP_ENDS = ("srun: Job step aborted", "srun: Terminating", "CANCELLED AT")


def find(log: LogContext) -> list[Death]:
    """One death for each process that ended badly."""
    drafts: list[tuple[int, DeathDraft]] = []
    for at, entry in log.blocks.entries:
        draft = _of_failure(log, at, entry.failure)
        draft.rank, draft.local_rank, draft.pid, draft.host = entry.rank, entry.local_rank, entry.pid, entry.host
        draft.time_s, draft.first, draft.is_table = entry.time_s, entry.is_first, True
        if entry.failure is None:
            draft.text = next((word for word in entry.words if not word.startswith("To enable")), "")
        if entry.exit_code is not None:
            draft.set_exit(entry.exit_code)
        drafts.append((at, draft))
    for at, file in log.blocks.error_files:
        draft = _of_failure(log, at, file.failure)
        who = log.writer_of(log.lines[at])
        draft.rank, draft.local_rank, draft.pid = who.rank, who.local_rank, who.pid
        draft.text, draft.time_s, draft.is_own = draft.text or file.text, file.time_s, True
        drafts.append((at, draft))
    step_ended = False
    for at, line in enumerate(log.lines):
        if not line.is_known or line.prefix.kind == "nccl" or len(drafts) >= MAX_DEATHS:
            continue
        step_ended = step_ended or any(mark in line.text for mark in _STEP_ENDS)
        for draft in launchers.read(log.lines, at):
            line.is_understood = True
            if line.rest.strip() == _ENDED_ALONE and at < _calm_from(log, _MAX_FOLLOWING):
                continue  # a script ends its own monitor in the same word
            is_of_task = draft.task is not None
            _complete(log, at, draft)
            if step_ended and is_of_task and draft.signal in ("SIGKILL", "SIGTERM"):
                draft.by_launcher = True
            if draft.kind == "exit" and (draft.exit_code or draft.first) and not draft.by_launcher:
                draft.last_words = _last_words(log, at)
            drafts.append((at, draft))
    drafts += _raised(log, max((at for at, draft in drafts if draft.kind == "exit"), default=-1))
    drafts.sort(key=lambda pair: pair[0])
    return merge([draft for _, draft in drafts])


def _raised(log: LogContext, last_exit_at: int) -> list[tuple[int, DeathDraft]]:
    """Exceptions that ended their process.  `last_exit_at`: the last line that gives an exit code.

    What a logger or `print_exc` wrote looks the same; it ended nothing where the training goes on behind it, unless a
    code is given: then others may have gone on.
    """
    found: list[tuple[int, DeathDraft]] = []
    if not log.blocks.tracebacks:
        return found
    progress = _last_but_one_step(log)
    calm_from, silent_from = _calm_from(log, _MAX_FOLLOWING), _calm_from(log, 0)
    is_over_from = _over_from(log)
    of_pipes: list[int] = []
    shown = _pointed_at(log)
    for block, behind in itertools.zip_longest(log.blocks.tracebacks, log.blocks.tracebacks[1:]):
        if _ends_nothing(block) or (behind is not None and block.root.name.endswith(_OF_NOTEBOOKS)):
            continue
        if found and _is_report(log, block, found[-1]):
            continue
        goes_on = progress > log.lines[block.error_lines[-1]].number
        if block.is_deadly:
            survived = goes_on and log.lines[block.start].prefix.rank is None and block.spawned is None
            if survived and last_exit_at < block.last:
                continue
        elif block.start not in shown and (
            not block.is_open
            or goes_on
            or block.last < (silent_from if block.is_logged else calm_from)
            or is_over_from <= block.start
            or _is_survivor(log, block)
        ):
            continue
        draft = _of_traceback(log, block)
        if draft is not None:
            draft.is_open = not block.is_deadly
            found.append((block.start, draft))
            of_pipes += [block.start] if _is_of_a_pipe(block) else []
    causes = [at for at, _ in found if at not in of_pipes]
    return [
        (at, draft)
        for at, draft in found
        if at not in of_pipes or not any(abs(at - other) <= _NEAR_A_PIPE for other in causes)
    ]


def _pointed_at(log: LogContext) -> set[int]:
    """Where the tracebacks begin of which something else says that they are why: an exception behind them that names
    what stands above as its cause, or a test's report."""
    blocks = log.blocks.tracebacks
    pointing = [b for b in blocks if compiled(_POINTS_UP).search(b.failures[-1].text)]
    last = max((b.start for b in pointing if b.is_deadly or log.lines[b.start].prefix.level in _GRAVE), default=0)
    if any(compiled(_TEST_FAILED).match(line) for line in log.scanned.tail.decode("utf-8", "replace").splitlines()):
        last = len(log.lines)
    return {
        b.start
        for b in blocks
        if not b.is_deadly and b.last < last <= b.last + _NEAR_A_CHILD and log.lines[b.start].prefix.level not in MILD
    }


def _ends_nothing(block: Traceback) -> bool:
    """Whether Python threw the exception away: in a finalizer, or in the thread that feeds multiprocessing's queue."""
    return any(
        function == "__del__" or (function == "_feed" and file.endswith("multiprocessing/queues.py"))
        for failure in block.failures
        for file, _, function in failure.frames
    )


def _is_report(log: LogContext, block: Traceback, before: tuple[int, DeathDraft]) -> bool:
    """Whether it only says that a command failed, whose own exception stands right above."""
    at, draft = before
    is_near = log.lines[block.start].number - log.lines[at].number <= _NEAR_A_CHILD
    return block.root.name.endswith("CalledProcessError") and is_near and not draft.text.startswith(block.root.name)


def _is_of_a_pipe(block: Traceback) -> bool:
    """Whether a process or thread found the pipe to another one of its program closed: that one had ended."""
    last = block.failures[-1]
    is_closed = last.name in _OF_A_PIPE or (last.name == "OSError" and "handle is closed" in last.message)
    return is_closed and bool(last.frames) and last.frames[-1][0].endswith(_PIPES)


def _last_but_one_step(log: LogContext) -> int:
    """The number of the last line but one that shows progress; a bar that is closed at the door is one line."""
    marks = {mark.number for mark in log.scanned.marks}
    marks |= {line.number for line in log.lines if compiled(_STEP).search(line.rest)}
    marks -= _farewells(log)  # a tracker's summary names the last step
    for block in log.blocks.tracebacks:  # `raise ValueError(f"no loss at step {n}")`
        marks -= {log.lines[at].number for at in block.taken if at <= block.error_lines[-1]}
    return sorted(marks)[-2] if len(marks) > 1 else 0


def _farewells(log: LogContext) -> set[int]:
    """The numbers of the last lines that say nothing but good-bye; most of them are not kept."""
    last = log.scanned.tail.rstrip(b"\n").split(b"\n")
    first = log.scanned.num_lines - len(last) + 1
    texts = (
        (number, text[:_FAREWELL_BYTES].decode("utf-8", "replace")) for number, text in enumerate(last, start=first)
    )
    return {number for number, text in texts if not text.strip() or compiled(_FAREWELL).match(text)}


def _over_from(log: LogContext) -> int:
    """The index from which on the program had reported that it was done, and made no progress any more."""
    found = len(log.lines)
    for at, line in enumerate(log.lines):
        if compiled(_GOOD_END).search(line.rest):
            found = min(found, at)
        elif found < at and compiled(_STEP).search(line.rest):
            found = len(log.lines)
    return found


def _is_survivor(log: LogContext, block: Traceback) -> bool:
    """Whether the lines right behind it say that the program went on: they may look like parts of its message."""
    if block.start > 0 and compiled(_IGNORED).search(log.lines[block.start - 1].rest):
        return True
    more = block.failures[-1].more
    if block.is_logged and any(text.strip() for text in more):
        return True
    behind = [
        line.rest
        for line in log.lines[block.last + 1 : block.last + 1 + _MAX_BACK]
        if not compiled(_FAREWELL).match(line.rest)
    ]
    return any(compiled(_WENT_ON).search(text) for text in (*more, *behind))


def _calm_from(log: LogContext, most: int) -> int:
    """The index from which on at most so many lines stand that a living program may have written."""
    num = 0
    after = log.scanned.num_lines + 1
    farewells = _farewells(log)
    for at in range(len(log.lines) - 1, -1, -1):
        line = log.lines[at]
        between = max(0, after - line.number - 1)
        if between and farewells:
            between -= sum(line.number < number < after for number in farewells)
        num += between
        if num > most:
            return at + 1
        num += _is_ordinary(line)
        if num > most:
            return at
        after = min(after, line.number)
    return 0


def _is_ordinary(line: Line) -> bool:
    """Whether a living program may have written it: no reader knows it, and it is no complaint of a library."""
    prefix = line.prefix
    if line.is_understood or not line.rest.strip() or prefix.kind == "nccl" or compiled(_FAREWELL).match(line.rest):
        return False
    return not (prefix.kind in ("glog", "python") and prefix.level in ("WARN", "ERROR", "FATAL"))


def _last_words(log: LogContext, at: int) -> str:
    """The last line before `lines[at]`, in the same output, that says why a process ended."""
    ended = log.lines[at]
    for back in range(at - 1, max(-1, at - 1 - _MAX_BACK), -1):
        line = log.lines[back]
        if compiled(_STEP).search(line.rest) and log.blocks.of_error.get(back) is None:
            break  # what stands above it was overcome
        if line.prefix.kind or (
            line.prefix.writer != ended.prefix.writer and ended.prefix.writer != (None, None, None)
        ):
            continue
        block = log.blocks.of_error.get(back)
        if block is not None:
            last = block.failures[-1]
            if block.is_deadly and not last.name.endswith(_ONLY_REPORTS) and not compiled(_ECHO).search(last.text):
                return last.text
        elif compiled(_REASON).match(line.rest) and not compiled(_ECHO).search(line.rest):
            return line.rest.strip()
    return _complaint(log, ended)


def _complaint(log: LogContext, ended: Line) -> str:
    """What a program says right before its end, in words that no reader knows, of something that went wrong, or that
    must be otherwise."""
    last = log.scanned.tail.rstrip(b"\n").split(b"\n")
    first = log.scanned.num_lines - len(last) + 1
    for number in range(ended.number - 1, max(first, ended.number - 1 - _MAX_NOISE), -1):
        line = log.another_line(number, last[number - first])
        is_others = line.prefix.writer != ended.prefix.writer and ended.prefix.writer != (None, None, None)
        if line.prefix.kind or is_others or compiled(_FAREWELL).match(line.rest) or not line.rest.strip():
            continue
        if compiled(_SAYS_NOTHING).search(line.rest):
            continue
        is_own = not (is_of_a_library(line.rest) or compiled(_ECHO).search(line.rest) or launchers.read([line], 0))
        is_said = is_bad(line.rest) or compiled(_DEMANDS).search(line.rest) is not None
        return line.rest.strip() if is_own and is_said else ""
    return ""


def _of_command(log: LogContext, block: Traceback) -> DeathDraft | None:
    """A launcher's last message on a process that it had started: subprocess.CalledProcessError."""
    last = block.failures[-1]
    match = compiled(_COMMAND).search("\n".join((last.message, *last.more)))
    if not last.name.endswith("CalledProcessError") or match is None:
        return None
    draft = _of_failure(log, block.start, None)
    draft.text = last.text
    if not any(file.endswith(_NAMES_THE_LAST) for file, _, _ in last.frames):
        draft.local_rank = launchers.local_rank_of(last.message)
    number = signal.Signals[match["name"]].value if match["name"] in signal.Signals.__members__ else match["signal"]
    draft.set_exit(-int(number) if number else int(match["code"] or 1))
    draft.signal = match["name"] or draft.signal
    if draft.kind == "exit":
        draft.last_words = _last_words(log, block.start)
    return draft


def _of_traceback(log: LogContext, block: Traceback) -> DeathDraft | None:
    root = block.root
    if block.is_launcher and any(f.name.endswith(_ONLY_REPORTS) for f in block.failures):
        root = block.failures[-1]
        if root.name.endswith(_ONLY_REPORTS):
            return _of_command(log, block)
    if root.name.endswith("Exception") and launchers.is_spawned(root.message):
        return None  # a child's end, which the line itself reports; the parent's exception is no rank's own
    draft = _of_failure(log, block.start, root)
    draft.is_own = True
    who = log.writer_of(log.lines[block.start])
    if block.is_launcher:
        draft.rank = draft.local_rank = None
        draft.is_agents = True
    elif block.spawned is not None:
        draft.local_rank, draft.rank, draft.pid = block.spawned, None, None
    elif block.of_ranks and who.rank not in block.of_ranks:
        draft.rank, draft.local_rank, draft.pid = block.of_ranks[0], None, None
    else:
        draft.rank, draft.local_rank, draft.pid, draft.host = who.rank, who.local_rank, who.pid, who.host
        draft.task = who.task
    if block.is_launcher or block.spawned is not None or draft.rank != who.rank:
        draft.origin = log.origin(log.lines[block.start], who._replace(rank=draft.rank, pid=None, host=None))
    return draft


def _of_failure(log: LogContext, at: int, failure: Failure | None) -> DeathDraft:
    """A draft without the identity of the process."""
    line = log.lines[at]
    who = log.writer_of(line)
    draft = DeathDraft(
        kind="exit", origin=log.origin(line, who), node=who.node, time_s=line.time_s, writer=_stream(log, at)
    )
    if failure is not None:
        draft.kind, draft.site, draft.call = "exception", failure.site, failure.call
        draft.text = failure.text if failure.last_error is None else f"{failure.text}; last error: {failure.last_error}"
        draft.last_error = failure.last_error or ""
        draft.is_collective_error = failure.is_collective_error
    return draft


def _stream(log: LogContext, at: int) -> object:
    task, _, node = log.lines[at].prefix.writer
    return task, node


def _complete(log: LogContext, at: int, draft: DeathDraft) -> None:
    """Fill in what the line's writer says of a process that its words do not name."""
    line = log.lines[at]
    who = log.writer_of(line)
    draft.origin, draft.time_s, draft.writer = log.origin(line, who), line.time_s, _stream(log, at)
    draft.node = draft.node or who.node
    if draft.exit_code is not None:
        draft.set_exit(draft.exit_code)
    if draft.is_agents:
        draft.task = who.task
        return
    if draft.is_own:
        draft.rank = who.rank if who.rank is not None else draft.rank
        draft.local_rank, draft.host, draft.task = who.local_rank, who.host, who.task
        draft.pid = who.pid if who.pid is not None else _own_pid(log, draft, line)
        if draft.rank is None and who.pid is None:
            draft.rank = log.writers.rank_of(who.host, draft.pid)
        return
    if draft.task is not None and log.writers.tasks_are_ranks:
        draft.rank = draft.task
    elif draft.is_handlers:
        draft.rank = _rank_of_handler(log, draft, who)
    elif draft.task is not None:
        pass  # of what the number is, is not known
    elif draft.pid is not None and draft.rank is None and line.prefix.kind not in ("kernel", "syslog"):
        draft.rank = log.writers.rank_of(None, draft.pid)
    elif draft.rank is None and draft.pid is None and draft.local_rank is None and draft.kind != "oom":
        draft.rank, draft.pid, draft.host = who.rank, who.pid, who.host
        draft.local_rank = who.local_rank
    if draft.host is None and line.prefix.kind in ("kernel", "syslog"):
        draft.host = line.prefix.host


def _rank_of_handler(log: LogContext, draft: DeathDraft, who: Writer) -> int | None:
    """By the process that it names; else by the file, unless another process wrote that: a rank's child has its own."""
    rank = log.writers.rank_of(draft.host, draft.pid)
    return who.rank if rank is None and who.pid in (None, draft.pid) else rank


def _own_pid(log: LogContext, draft: DeathDraft, line: Line) -> int | None:
    """The process of a line about itself.  A logger may print the thread, which has the process's number when it is the
    first: only a number that the file knows as a process's is taken for one."""
    if draft.is_handlers:
        return draft.pid
    number = draft.pid if draft.pid is not None else line.prefix.tid
    return number if log.writers.rank_of(None, number) is not None else None
