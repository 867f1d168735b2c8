"""What the scanner kept of a log -> one `Reading`."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from allready.evidence.lines.model import Scanned
from allready.evidence.log import blocks, closing, endings
from allready.evidence.log.context import LogContext
from allready.evidence.log.event_extraction import extract_events
from allready.evidence.log.events import Finder
from allready.evidence.log.line import decode
from allready.evidence.log.names import Hints, hints
from allready.evidence.log.parsing import ParsedLines
from allready.evidence.log.process_table import ProcessTable
from allready.evidence.log.sequence import from_lines, in_order
from allready.evidence.log.writer import WriterResolver
from allready.evidence.prefix import KnownFronts
from allready.evidence.reading import Reading
from allready.model import SourceRecord
from allready.model.events import troubled
from allready.model.fill import said

_MAX_EXAMPLES = 8
_MAX_LINE_CHARS = 300


class LogMemory:
    """What is remembered from one log to the next: it changes how long reading takes and never what it gives.

    The ranks of one job print the same lines.  Not for two threads at a time.
    """

    def __init__(self) -> None:
        self.fronts: KnownFronts = {}
        self.finder = Finder()


def interpret(
    scanned: Scanned, source: str, *, mtime_s: float | None, file_hints: bool = True, memory: LogMemory | None = None
) -> Reading:
    """Everything that `source` contains.

    Args:
        mtime_s: when the file was last written; it dates times without a year where no line has a full date.
        file_hints: whether the file's name may name the writer of lines that do not name it themselves.
    """
    memory = memory or LogMemory()
    parsed = ParsedLines(in_order(scanned), mtime_s, memory.fronts)
    processes = ProcessTable()
    for line in parsed.lines:
        line.is_understood = processes.feed(line)
    found = blocks.find(parsed.lines)
    writers = WriterResolver(
        parsed.lines,
        processes.ranks(),
        processes.nodes(),
        found.table_rows(parsed.lines),
        found.local_to_global(parsed.lines),
        hints(source) if file_hints else Hints(),
    )
    log = LogContext(source, scanned, parsed, found, writers)
    events = extract_events(log, memory.finder)
    deaths = endings.find(log)
    _name_writers_of_streams(log)
    return Reading(
        source=_record(log, events.num_dropped, by_name=file_hints),
        events=list(events),
        processes=processes.records(log),
        deaths=deaths,
        closing=closing.find(log),
        op_streams=scanned.streams,
    )


def read_lines(
    lines: Iterable[str | bytes],
    source: str = "-",
    *,
    mtime_s: float | None = None,
    file_hints: bool = True,
    memory: LogMemory | None = None,
) -> Reading:
    """The same for lines as they are, without a scanner; operations (COLL) are counted only."""
    raw = (line.encode("utf-8", "surrogateescape") if isinstance(line, str) else line for line in lines)
    return interpret(from_lines(raw), source, mtime_s=mtime_s, file_hints=file_hints, memory=memory)


def _name_writers_of_streams(log: LogContext) -> None:
    """Complete the origin of each stream of operations."""
    for stream in log.scanned.streams:
        old = stream.origin
        writer = log.writer_of_process(old.host, old.pid, old.rank)
        stream.origin = replace(
            old,
            source=log.source,
            rank=writer.rank,
            local_rank=writer.local_rank or old.local_rank,
            node=writer.node or old.node,
        )


def _record(log: LogContext, num_events_dropped: int, *, by_name: bool) -> SourceRecord:
    scanned, lines = log.scanned, log.lines
    times = [line.time_s for line in lines if line.time_s is not None]
    times += [t for stream in scanned.streams for _, t in stream.times]
    kept = [line for line in lines if line.is_known and line.text.strip()]
    unknown = [line for line in kept if not line.is_understood]
    unknown.sort(key=lambda line: (line.prefix.kind != "nccl", line.prefix.level in ("INFO", None)))
    followers = sum(1 for line in lines if not line.is_known and line.is_understood)
    marks = min(scanned.iterations.num_lines, scanned.num_rest)
    problems = list(scanned.problems)
    if scanned.num_dropped:
        form = "{num} lines between the first and the last ones were counted only"
        problems.append(said(form, num=f"{scanned.num_dropped:,}"))
    if num_events_dropped:
        problems.append(said("{num} events were counted only", num=f"{num_events_dropped:,}"))
    num_repeats = sum(repeat.count for repeat in scanned.repeats)
    num_understood = scanned.num_coll + len(kept) - len(unknown) + num_repeats + followers + marks
    rank = hints(log.source).rank if by_name else None
    record = SourceRecord(
        path=log.source,
        kind="log",
        size_bytes=scanned.num_bytes,
        num_lines=scanned.num_lines,
        num_understood=num_understood,
        num_unknown=len(unknown) + max(scanned.num_rest - followers - marks, 0),
        unknown_examples=_examples([*(line.text for line in unknown), *map(decode, scanned.rest_examples)]),
        first_time_s=min(times, default=None),
        last_time_s=max(times, default=None),
        rank=rank,
        last_line="" if rank is None else last_line_of(decode(scanned.tail)),
    )
    return troubled(record, *problems)


def last_line_of(text: str) -> str:
    """The last line that is not blank, without its end where that is long."""
    return next((line.strip()[:_MAX_LINE_CHARS] for line in reversed(text.splitlines()) if line.strip()), "")


def _examples(texts: Sequence[str]) -> tuple[str, ...]:
    """The first few that differ in more than their digits."""
    found: dict[str, str] = {}
    for text in texts:
        found.setdefault("".join(c for c in text if not c.isdigit())[:200], text[:300])
        if len(found) >= _MAX_EXAMPLES:
            break
    return tuple(found.values())
