"""What the parts of reading one log share: its lines, when each was written and by whom."""

from collections.abc import Sequence

from allready.evidence.lines.model import Scanned
from allready.evidence.log.blocks import Blocks
from allready.evidence.log.line import Line
from allready.evidence.log.parsing import ParsedLines
from allready.evidence.log.writer import Writer, WriterResolver
from allready.evidence.prefix import Prefix
from allready.model import Origin


class LogContext:
    """One log.  Its parts mark lines as understood and change nothing else in it."""

    def __init__(
        self, source: str, scanned: Scanned, parsed: ParsedLines, blocks: Blocks, writers: WriterResolver
    ) -> None:
        self.source, self.scanned, self.blocks, self.writers = source, scanned, blocks, writers
        self.lines: Sequence[Line] = parsed.lines
        self.another_line = parsed.another

    def writer_of(self, line: Line) -> Writer:
        """The writer of a line as far as it is known."""
        return self.writers.of(line.prefix)

    def origin(self, line: Line, writer: Writer | None = None) -> Origin:
        """Where a line stands; `writer` where it is not the line's own."""
        return self.origin_of(line.number, writer or self.writer_of(line))

    def origin_of(self, number: int, writer: Writer) -> Origin:
        """Where the line with this number stands."""
        return Origin(
            source=self.source,
            line=number,
            host=writer.host,
            pid=writer.pid,
            rank=writer.rank,
            local_rank=writer.local_rank,
            node=writer.node,
        )

    def writer_of_process(self, host: str | None, pid: int | None, rank: int | None = None) -> Writer:
        """The writer of NCCL's lines of a process."""
        return self.writers.of(Prefix("", host=host, pid=pid, rank=rank, kind="nccl"))
