"""What one pass over a log gives, and how the parts of a file that were scanned apart are put together again.

Pickled between processes; standard library only.
"""

import itertools

from msgspec import Struct, field

from allready.evidence.reading import OpStream
from allready.model.finding import Phrase


class LineLimits(Struct, frozen=True, kw_only=True):
    """How much of a log is kept.  The counts are exact whatever the limits are.

    head_lines, tail_lines: interesting lines kept from the beginning and from the end, each within `kept_bytes`.
    same_lines: of one process, lines that differ in numbers only; the others go into one `Repeat`.
    uninformative_lines: the same of lines of which a few are enough (`uninformative`).
    line_bytes: a longer line is examined in pieces of this size.  clip_bytes: what is kept of one line.
    block_lines, block_bytes: how far a block (a traceback, a table) reaches after its first line.
    marks, times: samples per stream; thinned evenly when there are more.
    streams, processes: as many are kept apart.  templates: lines of one shape known at a time.
    edge_bytes: kept of the beginning and of the end of a log, as they stand there.
    """

    head_lines: int = 20_000
    tail_lines: int = 20_000
    kept_bytes: int = 12 << 20
    same_lines: int = 2_000
    uninformative_lines: int = 16
    line_bytes: int = 65_536
    clip_bytes: int = 4_096
    block_lines: int = 80
    block_bytes: int = 131_072
    marks: int = 2_048
    times: int = 256
    streams: int = 20_000
    processes: int = 20_000
    templates: int = 200_000
    rest_examples: int = 8
    edge_bytes: int = 65_536


LIMITS = LineLimits()


class RawLine(Struct, kw_only=True, gc=False):
    """One line worth reading.

    `number` from 1; `offset` of the line's first byte in the stream.  `text` is clipped; of a line with carriage
    returns (a progress bar) it is the part that was worth it.  `following`: the next lines, operations left out, where
    this one begins a block.
    """

    number: int
    offset: int
    text: bytes
    following: tuple[bytes, ...] = ()


class Repeat(Struct, kw_only=True):
    """Lines of one process that differ in numbers only, beyond those kept in `Scanned.lines`.

    `process` is "host:pid" or "" where the line does not say.  `first`, `last`: numbers of lines; `text` of the last.
    """

    process: str
    text: bytes
    count: int
    first: int
    last: int
    last_offset: int


class Mark(Struct, kw_only=True):
    """An iteration number found in the log.  `tag`: whose line it is, as the prefix says; None when it does not."""

    iteration: int
    number: int  # of the line
    tag: str | None = None


RESTART = 2
"""A number lower by more is that of a count that began again: processes that write into one file are apart by less."""


class IterationMarks(Struct, kw_only=True):
    """All iteration marks of a log, thinned or not.

    `restart_line`: the last one whose number is again no higher than the first: another run in one file, or a count of
    steps that begins again in each epoch.
    """

    num_lines: int = 0
    first_line: int | None = None
    restart_line: int | None = None
    first: int | None = None  # as printed first
    last: int | None = None  # as printed last
    last_line: int | None = None
    highest: int | None = None


class Scanned(Struct, kw_only=True):
    """One log, or a part of one.

    `num_coll`, `num_blank` and `num_rest` lines are operations, empty or of no interest; of the others `lines` are
    those that were kept (the first and the last of them), in order; `num_dropped` were left out besides the `repeats`.
    A line longer than `LineLimits.line_bytes` may be there more than once (its pieces).
    `streams`: operations by process and communicator; `stream_tags`: who the prefix says wrote them, in that order.
    `last_lines`: "host:pid" -> its last line, operations included.
    `num_coll_apart`: operations that are in no stream because there were too many streams.
    `head`, `tail`: the first and the last bytes; what a program announces, and what it says when it ends.
    """

    num_bytes: int = 0
    num_lines: int = 0
    num_coll: int = 0
    num_blank: int = 0
    num_rest: int = 0
    num_dropped: int = 0
    num_coll_apart: int = 0
    lines: list[RawLine] = []
    num_head: int = 0  # how many of `lines` stand before those that were dropped
    repeats: list[Repeat] = []
    rest_examples: list[bytes] = []
    streams: list[OpStream] = []
    stream_tags: list[str | None] = []
    marks: list[Mark] = []
    iterations: IterationMarks = field(default_factory=IterationMarks)
    last_lines: dict[str, RawLine] = {}
    head: bytes = b""
    tail: bytes = b""
    problems: list[Phrase] = []


def split_ranges(size_bytes: int, workers: int, *, smallest_bytes: int = 64 << 20) -> list[tuple[int, int]]:
    """(first byte, byte after the last) of about equal parts, at most one per worker and none smaller than that.

    A line belongs to the part that has its first byte, so the borders need not be ends of lines.
    """
    num = max(1, min(workers, size_bytes // max(1, smallest_bytes)))
    borders = [size_bytes * i // num for i in range(num + 1)]
    return list(itertools.pairwise(borders))
