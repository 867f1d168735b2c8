"""What Python prints of an exception: tracebacks, plain, chained, grouped, remote, boxed by rich, interleaved."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from allready.evidence.log import flattened
from allready.evidence.log.line import Line
from allready.evidence.prefix import Prefix
from allready.evidence.stacks.libraries import CALLS
from allready.model.call_site import CallSite
from allready.patterns import compiled

HEADER = "Traceback (most recent call last)"
MAX_LINES = 400
MAX_SKIPPED = 3000
MAX_MESSAGE_LINES = 30
MAX_KEPT = 60
_MAX_SAID_LINES = 2
_MAX_CUT = 6  # lines above a header: an exception, and the words that it led to another one

_FRAME = r'\s*File "([^"]{1,1000})", line (\d{1,9})(?:, in (.{1,200}))?'
_RICH_FRAME = r"[│|]\s*(?:❱ )?(/?[^\s:│]{1,500}\.py):(\d{1,9}) in (\S{1,200})"
_NOTEBOOK = r"([A-Za-z_][\w.]{0,200}) {2,}Traceback \(most recent call last\)"
_CELL = r"Cell In ?\[\d{1,6}\], line (\d{1,9})|(<ipython-input-[^>]{1,200}>|~?[\w./\-]{1,500}\.py) in (<?\w{1,200}>?)"
_CELL_FILE = r"File (~?[\w./\-]{1,500}\.py):(\d{1,9}), in (<?[\w.]{1,200}>?)"
_ARROW = r"-{2,}> ?(\d{1,9})\b"
_MARGIN = r"\s*[|+] ?"
_RULE = r"\s*\+(?:-\+)?-{4,}(?: (\d+) -+)?"
_ERROR = r"((?:[A-Za-z_]\w*\.)+\w+(?:\[[^\]]*\])?|[A-Z]\w*)(?::(?: (.*))?)?\s*$"
_EXCEPTION = r"(?:Error|Exception|Interrupt|Exit|Warning|Failure|Timeout|Iteration|Died|Abort|Fault)\w{0,20}$|\."
"""Names of exceptions; others are believed below a frame."""

_COUNTS = r"\d{1,4} (?:\w{1,20} )?errors?\b(?! code)"
"""A message that counts errors, each of which is named below: pydantic's."""

_TORN = r" {4}\S"
_OF_A_STACK = r"\s|File \"|\w{1,60}Error"
"""The source of another process's frame in the place of a message, which was broken by it; and what is no message."""

_OF_THE_RUNTIME = r"terminate called |libc\+\+abi: |Fatal Python error: |\*\*\* \S"
"""What a process's runtime and its handlers print behind an exception: the end of its message."""

_OF_A_CANCEL = "CancelledError"
_CANCELS = ("KeyboardInterrupt", "TimeoutError")
"""What asyncio raises in a task that is cancelled, and what then tells why it was."""

_BORDER = r"(?:={8,}|-{8,}|\*{8,})$"
_SPAWNED = r"-- Process (\d{1,5}) terminated with the following error:"
_OF_RANK = r"\): \(RANK (\d{1,7})\)\s*$"
"""What torch's distributed checkpoint puts behind the header of a failed rank's traceback, in an exception that it
raises on all ranks."""

_SPAWN = "torch/multiprocessing/spawn.py"
_OF_SPAWN = ("ProcessRaisedException", "ProcessExitedException")
_NESTED = ("Original Traceback", '"""')
_CAUSE = "The above exception was the direct cause"
_CHAIN = (_CAUSE, "During handling of the above exception")
_NOT_DEADLY = (
    "Exception ignored in", "Exception in thread", "Exception in callback", "Logging error",
    "exception was never retrieved", "Exception occurred in preprocessing", "Error in atexit", "Error in sys.exc",
)  # fmt: skip
_DEADLY = ("Error executing job with overrides",)
"""What a framework prints in front of an exception that ends the program."""

_LIBRARIES = (
    "/site-packages/", "/dist-packages/", "<frozen ", "/lib/python", "/lib64/python", "<string>", "/torch/distributed/",
    "/torch/nn/modules/", "/jax/_src/", "/jaxlib/", "/importlib/", "<__array_function__", "/allready/runtime/",
)  # fmt: skip
_PACKAGED = r"^[^/].*\.pyx$|/bin/[\w\-]{1,60}$"
"""Cython's modules, which are built elsewhere, and the commands that packages install."""

_LAUNCHERS = (
    "torch/distributed/run.py", "torch/distributed/launch.py", "torch/distributed/launcher/",
    "distributed/elastic/agent",
    "accelerate/commands/", "deepspeed/launcher/", "bin/torchrun", "bin/accelerate", "bin/deepspeed",
)  # fmt: skip
_POOR = ("IndexError", "KeyError", "StopIteration")
_MISFITS = (
    "ValueError", "TypeError", "AttributeError", "AssertionError", "UnicodeDecodeError", "SyntaxError",
    "JSONDecodeError", "binascii.Error", "configparser.Error", "ParsingError", "ParseError", "ScannerError",
)  # fmt: skip
"""What Python and its parsers raise where a value is not what one try took it for: what was expected instead only the
function can say that tried.  Not among them: what the system, an import or a device said, which is the reason."""
MILD = ("DEBUG", "INFO", "WARN")
_STANDARD = r"/lib(?:64)?/python[\d.]{1,8}/(?!(?:site|dist)-packages/)"
_ENTRANCES = ("<module>", "_run_module_as_main", "_run_code", "_bootstrap", "_wrap", "main", "run_path")

_COLLECTIVE_TYPES = (
    r"(?:^|\.)(?:Dist(?:Backend|Store|Network|Queue)?Error|Rendezvous\w*Error|C10dError|NCCLError|NcclError|"
    r"DistributedOperationException)$"
    r"|^allready\.runtime\."
)
_AGREED = "allready.runtime."
"""Exceptions of the runtime library, which name who is at fault after what failed in their own calls."""
_COLLECTIVE = (
    r"NCCL error|NCCL operation|nccl(?:Unhandled|System|Internal|Remote|InvalidUsage|Invalid)\w*|NCCL communicator|"
    r"NCCL Error|/gloo/|Gloo |store->get|Socket Timeout|wait timeout after|Watchdog caught|Connection closed by peer|"
    r"Timed out initializing process group|monitoredBarrier|mismatch between collectives|recvValue failed|"
    r"store based barrier|client socket|server socket|Timed out waiting \d+ms|Timed out after \d+ seconds waiting for|"
    r"Connection reset by peer|Broken pipe|connectFullMesh|coordination service|Barrier timed out|heartbeat timeout|"
    r"GetKeyValue\(\) timed out|JAX distributed service|failed to connect to all addresses|"
    r"Application timeout caused pair closure|WorkNCCL|timed out in blocking wait|failed to recv, got 0 bytes|"
    r"NCCL Last Error:|Work timed out during finalize|HCCL (?:function )?error|Hccl[A-Z]\w{2,40}, error code|"
    r"call hccl api failed|HcclComm|AclrtSynchronize\w{0,40}, error code|"
    r"\b[Ss]ynchronize failed, error code: ?(?:107020|507046|507048)\b|working operator name is Hccl"
)

_LAST_ERROR = r"Last [Ee]rror:"

_OF_THE_PROGRAM = {"ConnectionResetError", "ConnectionRefusedError", "ConnectionAbortedError", "BrokenPipeError"}
"""Python's own: a data source, a tracker or a loader's pipe; the libraries of collectives raise RuntimeError."""


class Failure(Struct):
    """One exception: its name, its words, the frames it came through (outermost first)."""

    name: str
    message: str = ""
    frames: list[tuple[str, int, str]] = []
    more: list[str] = []  # further lines of its message

    @property
    def text(self) -> str:
        """Its name and words; where they are below its line, or a colon announces more, the first lines below count."""
        said = self.message.strip()
        if compiled(_TORN).match(self.message):
            said = next((line for line in self.more if line.strip() and not compiled(_OF_A_STACK).match(line)), "")
        elif not said or said.endswith(":") or compiled(_COUNTS).match(said):
            said = " ".join([said, *[line.strip() for line in self.more if line.strip()][:_MAX_SAID_LINES]]).strip()
        return f"{self.name}: {said}" if said else self.name

    @property
    def last_error(self) -> str | None:
        """NCCL's last message, from the line after `Last error:`, or behind nccl2's `NCCL Last Error:`."""
        for at, line in enumerate(self.more):
            found = compiled(_LAST_ERROR).search(line)
            if found:
                return line[found.end() :].strip() or next(
                    (m.strip() for m in self.more[at + 1 : at + 2] if m.strip()), None
                )
        return None

    @property
    def site(self) -> CallSite | None:
        return innermost(self.frames[::-1])

    @property
    def call(self) -> str:
        """The function of torch.distributed that the program called last."""
        for file, _, function in self.frames:
            if file.endswith(CALLS) and not function.startswith("_"):
                return function
        return ""

    @property
    def is_of_spawn(self) -> bool:
        """Whether `torch.multiprocessing.spawn` raised it in the parent, because a child had ended."""
        file, _, function = self.frames[-1] if self.frames else ("", 0, "")
        return self.name.endswith(_OF_SPAWN) or (function == "join" and file.endswith(_SPAWN))

    @property
    def is_collective_error(self) -> bool:
        if compiled(_COLLECTIVE_TYPES).search(self.name):
            return True
        if self.name in _OF_THE_PROGRAM:
            return False
        return compiled(_COLLECTIVE).search("\n".join((self.message, *self.more))) is not None


class Traceback(Struct):
    """A whole block.  `root` is the exception that began it; `failures` are all, as printed."""

    start: int  # index of the header
    last: int  # index of the last line that belongs to it
    failures: list[Failure]
    root: Failure
    lines: list[str]
    error_lines: list[int]  # indices of the lines that name an exception
    taken: list[int]  # indices of all its lines
    is_deadly: bool
    is_open: bool  # nothing says that it was caught, nor that it was not: deadly if it is what stands last
    is_logged: bool  # a logger's line stands right above
    is_launcher: bool
    spawned: int | None = None  # local rank of the child that torch.multiprocessing speaks of
    of_ranks: tuple[int, ...] = ()  # ranks of which it speaks, whichever rank wrote it: those that failed


def is_of_launcher(frames: Sequence[tuple[str, int, str]]) -> bool:
    """Whether the process is a launcher: some frame is its own code."""
    return any(mark in file for file, _, _ in frames for mark in _LAUNCHERS)


def innermost(frames: Sequence[tuple[str, int, str]]) -> CallSite | None:
    """The first frame outside the libraries; frames innermost first."""
    for file, line, function in frames:
        if not any(mark in file for mark in _LIBRARIES) and compiled(_PACKAGED).search(file) is None:
            return CallSite(file, line, function)
    return None


def begins(line: Line) -> bool:
    """Whether a traceback begins here."""
    return HEADER in line.text


def _is_agreed(failure: Failure, root: Failure) -> bool:
    """Whether it is what the ranks agreed upon after a call of theirs, and of no exception of the program's own."""
    return failure.name.startswith(_AGREED) and (root.site is None or root.is_collective_error)


def _is_misfit(root: Failure, tried: str) -> bool:
    """Whether a value was not what one try of a function took it for: it says so itself, or Python's own library."""
    file = root.frames[-1][0]
    is_pythons = compiled(_STANDARD).search(file) is not None or file.startswith("<frozen ")
    return root.name.endswith(_MISFITS) and (file == tried or is_pythons)


class _Reader:
    """State of one block while its lines come in."""

    def __init__(self, opener: Line) -> None:
        self.failures: list[Failure] = []
        self.root: Failure | None = None
        self.frames: list[tuple[str, int, str]] = []
        self.all_frames: list[tuple[str, int, str]] = []
        self.in_message = False
        self.after_blank = False
        self.expects_header = False
        self.is_nested = False
        self.is_caused = False  # the program says itself that the exception above is the cause
        self.source = ""
        self.spawned: int | None = None
        self.of_ranks: list[int] = []
        self.is_group = "Exception Group Traceback" in opener.rest
        self.is_boxed = "╭" in opener.rest or "─ Traceback" in opener.rest
        self.last_number = opener.number
        notebook = compiled(_NOTEBOOK).match(opener.rest.strip())
        self.of_notebook = None if notebook is None else notebook[1]

    def take(self, line: Line) -> bool | None:
        """True when the line was taken, None when it is another's, False when the block has ended."""
        text = line.rest
        if self.is_boxed:
            return self._take_boxed(text)
        if self.is_group:
            if compiled(_RULE).match(text):
                self.in_message = False
                self.frames = []
                return True
            margin = compiled(_MARGIN).match(text)
            if margin is None and self.in_message:
                return False
            text = text[margin.end() :] if margin else text
        if HEADER in text:
            return self._take_header(text)
        if self.in_message:
            return self._take_message(text, is_next=line.number <= self.last_number + 2 or line.prefix.rank is not None)
        return self._take_frame(text)

    def _take_boxed(self, text: str) -> bool:
        frame = compiled(_RICH_FRAME).search(text)
        if frame is not None:
            self._add_frame(frame[1], int(frame[2]), frame[3])
        elif "╰" in text:
            self.is_boxed = False
        return True

    def _take_header(self, text: str) -> bool:
        of_rank = compiled(_OF_RANK).search(text)
        if of_rank is not None and self.in_message:
            self._begin_of_rank(int(of_rank[1]))
            return True
        self.is_nested = self.is_nested or "Original Traceback" in text
        starts_other = self.in_message and not (self.expects_header or self.is_nested or self.is_group)
        if starts_other or (not self.in_message and self.frames and not self.is_group):
            return False
        self.in_message = self.expects_header = self.after_blank = False
        self.frames = []
        return True

    def _begin_of_rank(self, rank: int) -> None:
        """What follows is the traceback of a rank that failed: the exception that passes it on says nothing."""
        if not self.of_ranks:
            self.root = None
        self.of_ranks.append(rank)
        self.in_message = self.expects_header = self.after_blank = False
        self.frames = []

    def _take_message(self, text: str, *, is_next: bool) -> bool:
        stripped = text.strip()
        if not stripped:
            is_ended = self.after_blank and not self.expects_header
            if is_ended and (self.failures[-1].message or not self.failures[-1].is_of_spawn):
                return False
            self.after_blank = True
            return True
        if stripped.startswith(_CHAIN):
            self.expects_header = True
            self.is_caused = stripped.startswith(_CAUSE)
            return True
        spawned = compiled(_SPAWNED).match(stripped)
        if spawned is not None:
            self.spawned, self.is_nested = int(spawned[1]), True
            self.root = None  # the parent's words say nothing
            return True
        if stripped.startswith(_NESTED):
            self.is_nested = True
            return True
        is_over = self.expects_header or self.after_blank or not is_next
        if is_over or compiled(_BORDER).match(stripped) or compiled(_OF_THE_RUNTIME).match(stripped):
            return False
        if len(self.failures[-1].more) >= MAX_MESSAGE_LINES:
            return False
        self.failures[-1].more.append(text[:1000])
        return True

    def _take_frame(self, text: str) -> bool | None:
        if not text.strip():
            return True
        frame = compiled(_FRAME).match(text)
        if frame is not None:
            self._add_frame(frame[1], int(frame[2]), frame[3] or "?")
            return True
        if self.of_notebook is not None and self._take_cell(text):
            return True
        if text[0] in " \t":
            self.source = text.strip(" \t\r\n^~") or self.source
            return True
        error = compiled(_ERROR).match(text)
        if error is None or not (self.all_frames or self.is_group or compiled(_EXCEPTION).search(error[1])):
            return None  # of another stream, which was flushed first
        self._add_failure(error[1], error[2] or "")
        return True

    def _take_cell(self, text: str) -> bool:
        """A frame as IPython shows it: `Cell In[3], line 1`, `File ~/train.py:22, in fit(x)`, or, in older versions, a
        file and a function with an arrow at the line."""
        arrow = compiled(_ARROW).match(text)
        if arrow is not None:
            for frames in (self.frames, self.all_frames):
                if frames and not frames[-1][1]:
                    frames[-1] = (frames[-1][0], int(arrow[1]), frames[-1][2])
            return True
        file = compiled(_CELL_FILE).match(text)
        cell = compiled(_CELL).match(text)
        if file is not None:
            self._add_frame(file[1], int(file[2]), file[3])
        elif cell is not None and cell[1] is not None:
            self._add_frame(text.split(", line")[0].strip(), int(cell[1]), "<module>")
        elif cell is not None:
            self._add_frame(cell[2], 0, cell[3])
        return file is not None or cell is not None

    def _add_frame(self, file: str, line: int, function: str) -> None:
        self.source = ""
        for frames in (self.frames, self.all_frames):
            if len(frames) < MAX_LINES:
                frames.append((file, line, function.strip()))

    def _add_failure(self, name: str, message: str) -> None:
        if not message.strip() and name == "AssertionError" and self.source.startswith("assert "):
            message = self.source  # what did not hold is all that there is to say
        failure = Failure(name, message[:2000], self.frames)
        root = self.root
        is_inner = self.is_nested or (self.is_group and len(self.failures) == 1)
        if root is None or is_inner or _is_agreed(failure, root) or self._is_reworded(root, failure):
            self.root = failure
        self.failures.append(failure)
        self.frames = []
        self.in_message, self.is_nested, self.after_blank = True, False, False

    def _is_reworded(self, root: Failure, failure: Failure) -> bool:
        """Whether the function whose try failed says itself what it had expected, in words of its own; or what
        cancelled a task says so."""
        if root.name.endswith(_OF_A_CANCEL):
            return failure.name.endswith(_CANCELS)
        said = failure.message.strip()
        if not (root.frames and self.frames and self.source.startswith("raise ")):
            return False
        tried, place = root.frames[0], self.frames[-1]
        if (tried[0], tried[2]) != (place[0], place[2]):
            # What a lookup did not find was made instead, and that failed.
            passed = {(file, function) for file, _, function in self.frames}
            return root.name in _POOR and not self.is_caused and (tried[0], tried[2]) in passed
        return root.name in _POOR or (
            not self.is_caused and _is_misfit(root, tried[0]) and len(said) > len(root.message.strip())
        )

    def rooted(self) -> Failure | None:
        """The exception that began it.  The parent's frames are not where its child failed; of a child whose traceback
        is cut the frames that are there count."""
        if self.of_ranks and self.failures:  # called from here, failed there
            outer = self.failures[0]
            is_passed_on = self.root is not None and self.root is not outer
            return replace(self.root, frames=outer.frames + self.root.frames) if self.root and is_passed_on else outer
        if self.root is None and self.of_notebook is not None and self.all_frames:
            return Failure(self.of_notebook, frames=self.frames)  # its message is cut off
        if self.root is None:
            return Failure("Exception", frames=self.frames) if self.failures else None
        return replace(self.root, frames=[]) if self.root.is_of_spawn else self.root


def read(lines: Sequence[Line], start: int, *, has_header: bool = True) -> Traceback | None:
    """The traceback whose header, or first frame, is `lines[start]`; None when its exception is not in `lines`."""
    opener = lines[start]
    reader = _Reader(opener)
    before_it = _line_before(lines, start)
    match = None if before_it is None else compiled(_SPAWNED).match(before_it.rest.strip())
    reader.spawned = None if match is None else int(match[1])
    of_rank = compiled(_OF_RANK).search(opener.text)
    reader.of_ranks = [] if of_rank is None else [int(of_rank[1])]
    if not has_header:
        reader.take(opener)
    rows = flattened.rows_of(opener.rest) if has_header else []
    taken, error_lines = (
        _of_one_line(reader, start, opener, rows) if rows else _followed(lines, start, reader, has_header)
    )
    root = (_cut_above(lines, start) if has_header else None) or reader.rooted()
    if root is None:
        return None
    while len(taken) > 1 and not lines[taken[-1]].rest.strip():
        taken.pop()
    if not reader.failures:
        reader.failures.append(root)
        error_lines.append(taken[-1])
    kept = taken if len(taken) <= MAX_KEPT else taken[:10] + taken[10 - MAX_KEPT :]
    is_launcher = is_of_launcher(reader.all_frames)
    return Traceback(
        start=start,
        last=taken[-1],
        failures=reader.failures,
        root=root,
        lines=[lines[at].rest[:500] for at in kept],
        error_lines=error_lines,
        taken=taken,
        is_deadly=_is_deadly(lines, start, reader),
        is_open=_is_open(lines, start, reader),
        is_logged=_is_logged(lines, start),
        is_launcher=is_launcher,
        spawned=reader.spawned,
        of_ranks=tuple(reader.of_ranks),
    )


def _followed(lines: Sequence[Line], start: int, reader: _Reader, has_header: bool) -> tuple[list[int], list[int]]:
    """Read the lines below the opener: which of them belong to it, and which of those name an exception."""
    opener = lines[start]
    taken, error_lines = [start], list[int]()
    for at in range(start + 1, min(len(lines), start + MAX_SKIPPED)):
        line = lines[at]
        if line.prefix.writer != opener.prefix.writer or line.prefix.rank != opener.prefix.rank:
            continue
        if not line.continues(opener):
            if reader.in_message and not reader.expects_header:
                break
            continue
        before = len(reader.failures)
        verdict = reader.take(line)
        if verdict is False or len(taken) > MAX_LINES or (verdict is None and not has_header):
            break
        if verdict:
            taken.append(at)
            reader.last_number = line.number
            if len(reader.failures) > before:
                error_lines.append(at)
    return taken, error_lines


def _of_one_line(reader: _Reader, start: int, opener: Line, rows: Sequence[str]) -> tuple[list[int], list[int]]:
    """The same of a traceback that stands in its opener's line."""
    for row in rows:
        if reader.take(Line(opener.number, row, opener.prefix._replace(rest=row))) is False:
            break
    return [start], [start] * len(reader.failures)


def _cut_above(lines: Sequence[Line], start: int) -> Failure | None:
    """The exception that led to this one, where its own traceback is cut and only its last line is left."""
    opener = lines[start]
    near = (line for line in lines[max(0, start - _MAX_CUT) : start] if line.number >= opener.number - _MAX_CUT)
    of_it = (
        line for line in near if (line.prefix.writer, line.prefix.rank) == (opener.prefix.writer, opener.prefix.rank)
    )
    words = [text for line in of_it if (text := line.rest.strip())]
    if len(words) < 2 or not words[-1].startswith(_CHAIN):
        return None
    error = compiled(_ERROR).match(words[-2])
    if error is None or not error[2] or compiled(_EXCEPTION).search(error[1]) is None:
        return None
    return Failure(error[1], error[2][:2000])


def _line_before(lines: Sequence[Line], start: int) -> Line | None:
    """The line right above, where it is among these."""
    before = lines[start - 1] if start else None
    return before if before is not None and before.number == lines[start].number - 1 else None


def _is_caught(lines: Sequence[Line], start: int) -> bool:
    """Whether the words in front say that it ends nothing, or a logger wrote it."""
    opener = lines[start]
    before = _line_before(lines, start)
    if before is not None and any(mark in before.text for mark in _NOT_DEADLY):
        return True
    return any(mark in opener.text for mark in _NOT_DEADLY) or opener.prefix.kind in ("glog", "python")


def _is_logged(lines: Sequence[Line], start: int) -> bool:
    before = _line_before(lines, start)
    return before is not None and before.prefix.kind in ("glog", "python") and before.prefix.level is not None


def _is_open(lines: Sequence[Line], start: int, reader: _Reader) -> bool:
    """Whether only what follows can tell: no entrance of a program above it, as below `mp.spawn` or in what is cut."""
    before = _line_before(lines, start)
    is_warned = before is not None and before.prefix.kind in ("glog", "python") and before.prefix.level in MILD
    return bool(reader.all_frames) and not is_warned and not _is_caught(lines, start)


def _is_deadly(lines: Sequence[Line], start: int, reader: _Reader) -> bool:
    """Whether it was not caught: Python's hook printed it (torch marks it with the rank), not a logger."""
    opener = lines[start]
    if _is_caught(lines, start):
        return False
    before = _line_before(lines, start)
    is_announced = before is not None and any(mark in before.text for mark in _DEADLY)
    if is_announced or opener.prefix.rank is not None or reader.spawned is not None:
        return True
    # Of a chain, the first shows how far up it was caught, and only the last where the program was entered.
    outermost = [*reader.all_frames[:1], *(reader.failures[-1].frames[:1] if reader.failures else ())]
    return any(function in _ENTRANCES for _, _, function in outermost)


def read_text(text: str) -> Failure | None:
    """The exception that began it, from a traceback in one piece; also from a single `Name: words`."""
    rows = text.splitlines()[:2000]
    lines = [Line(number, row, Prefix(row)) for number, row in enumerate(rows, start=1)]
    for at, line in enumerate(lines):
        if HEADER in line.text:
            found = read(lines, at)
            return None if found is None else found.root
    error = compiled(_ERROR).match(rows[0]) if rows else None
    return None if error is None else Failure(error[1], (error[2] or "")[:2000], [], rows[1 : 1 + MAX_MESSAGE_LINES])
