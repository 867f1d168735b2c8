"""Blocks of lines that belong together: tracebacks, torchelastic's tables, `Rendezvous complete`."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from allready.evidence.log import elastic, headless, tracebacks
from allready.evidence.log.elastic import ErrorFile, FailedProcess
from allready.evidence.log.line import Line
from allready.evidence.log.tracebacks import Traceback
from allready.evidence.log.writer import WriterKey
from allready.patterns import compiled

MAX_BLOCKS = 5000
_NOISE = (
    r"frame #\d+:|Exception raised from |C\+\+ CapturedTraceback:|#\d+ .{1,300} from .{1,300}:\d+|"
    r"={8,}\s*$|-{8,}\s*$|\*{8,}\s*$|=== Source Location Trace"
)
"""Parts of messages that say nothing alone."""


class Blocks(Struct):
    """All blocks of a log; integers are indices into its lines."""

    tracebacks: list[Traceback] = []
    entries: list[tuple[int, FailedProcess]] = []
    rendezvous: dict[int, Mapping[str, str]] = {}
    error_files: list[tuple[int, ErrorFile]] = []
    of_error: dict[int, Traceback] = {}  # line that names the exception -> its traceback

    def add(self, block: Traceback) -> None:
        """Take in one traceback."""
        self.tracebacks.append(block)
        self.of_error.update(dict.fromkeys(block.error_lines, block))

    def table_rows(self, lines: Sequence[Line]) -> Iterator[tuple[WriterKey, int | None, int | None, int | None]]:
        """(writer, rank, local rank, pid) of every failed process in a table."""
        for at, entry in self.entries:
            yield lines[at].prefix.writer, entry.rank, entry.local_rank, entry.pid

    def local_to_global(self, lines: Sequence[Line]) -> dict[tuple[WriterKey, int], int]:
        """Global rank by the launcher's stream and local rank, where the file holds one answer only."""
        found: dict[tuple[WriterKey, int], set[int]] = {}
        for at, values in self.rendezvous.items():
            task, _, node = lines[at].prefix.writer
            ranks = elastic.numbers(values.get("global_ranks"))
            locals_ = elastic.numbers(values.get("local_ranks")) or list(range(len(ranks)))
            for local, rank in zip(locals_, ranks, strict=False):
                found.setdefault(((task, None, node), local), set()).add(rank)
        return {key: next(iter(ranks)) for key, ranks in found.items() if len(ranks) == 1}


def find(lines: Sequence[Line]) -> Blocks:
    """Every block, once; its lines are marked as understood."""
    found = Blocks()
    taken: set[int] = set()
    num = 0
    for at, line in enumerate(lines):
        if at in taken or num >= MAX_BLOCKS or not line.is_known or line.prefix.kind == "nccl":
            continue
        if compiled(_NOISE).match(line.rest):
            line.is_understood = True
            continue
        members: list[int] = []
        if line.text.lstrip().startswith("{") and '"message"' in line.text:
            error_file = elastic.read_error_file(line.text)
            if error_file is not None:
                found.error_files.append((at, error_file))
                members = [at]
        elif (is_whole := tracebacks.begins(line)) or headless.begins(line):
            block = tracebacks.read(lines, at) if is_whole else headless.read(lines, at)
            if block is not None:
                found.add(block)
                members = block.taken
        elif elastic.is_section(line):
            entries, members = elastic.read_section(lines, at)
            found.entries += [(at, entry) for entry in entries]
        elif "Rendezvous complete for workers" in line.text:
            found.rendezvous[at], members = elastic.read_settings(lines, at)
        num += bool(members)
        for member in members:
            taken.add(member)
            lines[member].is_understood = True
    alone = headless.last_words(lines, taken)
    if alone is not None:
        found.add(alone)
    return found
