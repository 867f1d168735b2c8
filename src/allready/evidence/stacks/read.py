"""A file of stacks: any number of processes, any of the tools, mixed and with the prefixes of launchers."""

import re
from collections.abc import Iterator
from pathlib import PurePath

from allready.evidence.reading import Reading, Tally
from allready.evidence.stacks.pyspy_json import take_json
from allready.evidence.stacks.text import ANSI, StackLines
from allready.evidence.stacks.threads import MAX_PROCESSES, OpenProcess, finished
from allready.model import Origin
from allready.model.finding import Phrase
from allready.patterns import compiled

MAX_WRITERS = 2_000
LONGEST_LINE = 8_192

_PREFIX = r"^(?:\[rank(\d{1,7})\]:[ ]?|\[default(\d{1,7})\]:|\d{1,6}: |\[\d{1,6},\d{1,6}\]<std(?:out|err)>:)"
_JSON = r'(?m)^(?P<space>[ \t]*)\[\s*\{\s*"pid"\s*:\s*\d+\s*,\s*"thread_id"'
_FILE_PID = r"(?i)(?:^|[._-])(?:py-?spy|p?stack|gdb|faulthandler|dump|pid|trace)s?[._-]?(\d{2,10})(?=\D|$)"
_FILE_RANK = r"(?i)(?<![a-z])rank[._-]?(\d{1,7})(?=\D|$)"
_FILE_NODE = r"(?i)(?<![a-z])(node[._-]?\d{1,7})(?=\D|$)"

_FORMS = (
    r'^(?:Process \d+: |Python v\d\S* \(|Thread (?:0x[0-9A-Fa-f]+|\d+)(?: \((?:idle|active)[+gil]*\)|: ")'
    r"| {4}\S.* \(\S+\)$|(?:Current thread|Thread|Stack).{0,80}\(most recent call first\):"
    r'| {2}File ".*", line \d+,? in '
    r"|Thread \d+ \(.*LWP \d+|#\d+ +(?:0x[0-9a-f]{8,} )?\S|\[<(?:0|[0-9a-f]{8,16})>\] |TID \d+:|PID \d+ - "
    r"| {8}(?:Arguments|Locals):| {12}\w+: |Fatal Python error: |Timeout \(\d+:\d\d:\d\d)"
)
_BEGINS = (
    r"\s*(?:Process \d+: .*\nPython v|--- Process \d+: .* ---\n\s*Error: "
    r"|Error: Failed to .*\n\s*(?:Reason|Caused)|Permission Denied: Try running)"
)
_ANCHOR = (
    r"(?m)^(?:\[\w+\]:[ ]?|\d+: |\[\d+,\d+\]<std\w+>:[ ]?)?"
    r"(?:Thread (?:0x[0-9A-Fa-f]+|\d+)(?: \((?:idle|active)[+gil]*\)|: \")"
    r"|(?:Current thread|Thread|Stack).{0,80}\(most recent call first\):|#0 +\S|\[<(?:0|[0-9a-f]{8,16})>\] \S)"
)


def is_stacks(head: bytes) -> bool:
    """Whether a file that begins so is made of stacks: most lines are frames, threads and processes."""
    text = compiled(ANSI).sub("", head[:65536].decode("utf-8", "replace")).replace("\r\n", "\n")
    if compiled(_JSON).search(text):
        return True
    if compiled(_BEGINS).match(text):
        return True
    if not compiled(_ANCHOR).search(text):
        return False
    lines = [compiled(_PREFIX).sub("", x, count=1) for x in text.split("\n")[:400] if x.strip()]
    return sum(1 for x in lines if compiled(_FORMS).match(x)) * 2 > len(lines)


def read_stacks(data: bytes, source: str) -> Reading:
    """All stacks in one file; a pid, rank or node in its name helps where the text has none."""
    text = compiled(ANSI).sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n")
    reader = _Reader()
    at, line = 0, 1
    while at < len(text):
        match = compiled(_JSON).search(text, at)
        end = match.end("space") if match else len(text)
        line = reader.lines(text[at:end], line)
        if match is None:
            break
        found, at, problem = take_json(text, end, line)
        reader.take_processes(found, problem)
        line += text.count("\n", end, at)
    processes = finished(reader.processes, source, _hints(source))
    num_lines = text.count("\n") + (bool(text) and not text.endswith("\n"))
    record = reader.tally.record(source, "stacks", len(data), num_lines, problem=reader.problem)
    return Reading(source=record, stacks=processes)


class _Reader:
    """Gives every line to the machine of its prefix."""

    def __init__(self) -> None:
        self.processes: list[OpenProcess] = []
        self.writers: dict[str, StackLines] = {}
        self.tally = Tally()
        self.problem: Phrase | None = None

    def lines(self, text: str, number: int) -> int:
        """Lines of text; the number of the line that they end on."""
        for i, raw in enumerate(_lines(text), number):
            line = raw.rstrip()
            match = compiled(_PREFIX).match(line)
            if match:
                line = line[match.end() :]
            if not line.strip():
                continue
            if self._writer(match).take(line, i):
                self.tally.num_known += 1
            else:
                self.tally.add_unknown(line)
        return number + text.count("\n")

    def _writer(self, match: re.Match[str] | None) -> StackLines:
        prefix = match.group().strip() if match else ""
        if prefix not in self.writers and len(self.writers) >= MAX_WRITERS:
            prefix = ""
        if prefix not in self.writers:
            rank, local_rank = match.groups() if match and prefix else (None, None)
            self.writers[prefix] = StackLines(
                self.processes, rank=int(rank) if rank else None, local_rank=int(local_rank) if local_rank else None
            )
        return self.writers[prefix]

    def take_processes(self, found: list[OpenProcess], problem: Phrase | None) -> None:
        """The processes of a JSON list; a header line before it may give their rank."""
        pending = self.writers[""].pending if "" in self.writers else {}
        rank = pending.pop("rank", None)
        pending.clear()
        if len(found) == 1 and isinstance(rank, int):
            found[0].rank = rank
        self.processes += found[: MAX_PROCESSES - len(self.processes)]
        self.tally.num_known += len(found)
        self.problem = self.problem or problem


def _lines(text: str) -> Iterator[str]:
    """The lines one after the other, the beginning of long ones: a list of all would take many times the text."""
    at = 0
    while at >= 0:
        end = text.find("\n", at)
        stop = len(text) if end < 0 else end
        yield text[at : min(stop, at + LONGEST_LINE)]
        at = end + 1 if end >= 0 else -1


def _hints(source: str) -> Origin:
    name = PurePath(source.rpartition("!")[2]).name
    pid, rank, node = (
        compiled(_FILE_PID).search(name),
        compiled(_FILE_RANK).search(name),
        compiled(_FILE_NODE).search(name),
    )
    return Origin(
        source=source,
        pid=int(pid.group(1)) if pid else None,
        rank=int(rank.group(1)) if rank else None,
        node=node.group(1) if node else None,
    )
