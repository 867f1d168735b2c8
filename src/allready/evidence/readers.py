"""One source -> one `Reading`: find out what it is and give it to the reader of its kind.

Nothing that a source contains ends the whole: a reader that fails is a problem of that source, named in its record.
"""

import functools
import io
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from allready.evidence import sniff
from allready.evidence.inputs import LIMITS, Found, InputLimits, Source, open_plain, unpack
from allready.evidence.inputs.envelopes import Envelope, opened_part
from allready.evidence.reading import Reading
from allready.model import SourceRecord
from allready.model.events import troubled
from allready.model.fill import said
from allready.model.finding import Phrase
from allready.patterns import compiled_bytes

if TYPE_CHECKING:
    from allready.evidence.lines.model import Scanned
    from allready.evidence.lines.scan import ScanMemory
    from allready.evidence.log import LogMemory

NO_LANE = "ALLREADY_NO_LANE"
"""Environment variable: where it is set and not empty, logs are read without the fast lane."""

MAX_WHOLE_BYTES = 40 << 20
"""Readers of small kinds take a whole file; of a longer one they get the beginning."""

MAX_REPORT_BYTES = 16 << 20  # of 1,024 nodes it has less than 2 MB; parsing takes ten times its size in memory
MAX_STACKS_BYTES = 24 << 20
MAX_DUMP_BYTES = 64 << 20  # of the dumps in one file

_FATAL_MARK = b"Fatal Python error: "
_STACK_MARK = b"(most recent call first):"
_TABLE_MARKS = (b"# nThread ", b"# nccl-tests version", b"# Collective test starting", b"out-of-place")
_MAX_MARK_BYTES = max(map(len, (_STACK_MARK, *_TABLE_MARKS)))
MAX_ASIDE_BYTES = 64 << 20
_STAMP = rb"(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) (?:std(?:out|err) [FP] )?"
"""What a container's runtime puts before each line, the rows of tables and stacks too."""

_MAX_MEMBER_BYTES = 8 << 20  # of an archive's member, whose end cannot be examined first


class ReadOptions(Struct, frozen=True, kw_only=True):
    """What the user asked of the readers.

    kinds: read only sources of these kinds; empty for all.
    iteration_marker: a regular expression with one group, the number.
    use_lane: whether the fast lane for operation lines may be used; it changes nothing but time.
    """

    kinds: frozenset[str] = frozenset()
    iteration_marker: str | None = None
    limits: InputLimits = LIMITS
    use_lane: bool = True


DEFAULT = ReadOptions()


class ReaderContext:
    """What one reader reads with: what the user asked for, and what was learnt from the files before.

    What was learnt changes how long reading takes and never what it gives.  For one file at a time; sent to another
    process it brings the options only.
    """

    def __init__(self, options: ReadOptions = DEFAULT) -> None:
        self.options = options
        self._use_lane = options.use_lane and not os.environ.get(NO_LANE)

    def __reduce__(self) -> tuple[type["ReaderContext"], tuple[ReadOptions]]:
        return ReaderContext, (self.options,)

    @functools.cached_property
    def _scan_memory(self) -> "ScanMemory":
        from allready.evidence.lines.scan import ScanMemory

        return ScanMemory()

    @functools.cached_property
    def _log_memory(self) -> "LogMemory":
        from allready.evidence.log import LogMemory

        return LogMemory()

    def scan(self, stream: BinaryIO, label: str, **part: Any) -> "Scanned":
        """See `lines.scan.scan`; `part`: its other arguments."""
        from allready.evidence.lines.scan import scan

        marker = self.options.iteration_marker
        return scan(
            stream, source=label, iteration_marker=marker, memory=self._scan_memory, use_lane=self._use_lane, **part
        )

    def interpret(self, scanned: "Scanned", label: str, mtime_s: float | None) -> Reading:
        """See `log.interpret`."""
        from allready.evidence.log import interpret

        return interpret(scanned, label, mtime_s=mtime_s, memory=self._log_memory)


def read_found(
    found: Found, context: ReaderContext | None = None, took: Callable[[int], None] = lambda _: None
) -> Iterator[Reading]:
    """Everything in one found file, in order."""
    context = context or ReaderContext()
    for item in unpack(found, limits=context.options.limits, took=took):
        if isinstance(item, SourceRecord):
            yield Reading(source=item)
        elif (reading := read_source(item, context)) is not None:
            yield reading


def read_source(source: Source, context: ReaderContext) -> Reading | None:
    """What one source says; None when its kind was not asked for.

    Damage, a reader that raises and memory that is too small are in the record's `problem`.
    """
    kind = kind_of_source(source)
    kinds = context.options.kinds
    if kinds and kind not in kinds:
        return None
    empty = SourceRecord(path=source.label, kind=kind, size_bytes=source.size_bytes or len(source.head))
    if kind in sniff.PASSED_OVER:
        return Reading(source=empty)
    problem = None
    try:
        with source.open() as stream:
            reading = _READERS[kind](stream, source, context)
        renumbered(reading, source.envelopes)
    except MemoryError:
        reading, problem = Reading(source=empty), said("there was not enough memory to read it")
    except Exception as error:  # noqa: BLE001 - whatever a file makes a reader do, the other files are read
        text = " ".join(str(error).split())[:300]
        what = f"{type(error).__name__}: {text}"
        reading, problem = Reading(source=empty), said("its reader failed: {error}", error=what)
    return with_record(reading, source, kind, problem)


def renumbered(reading: Reading, envelopes: Sequence[Envelope]) -> Reading:
    """The reading, with the numbers of lines that they have in the file."""
    moves = [one.moves for one in envelopes if one.moves is not None]
    if any(one.num_added for one in moves):
        from allready.evidence.renumbered import renumber

        line_of = functools.partial(functools.reduce, lambda number, one: one.line_of(number), moves[::-1])
        renumber(reading, line_of, moves[0].num_lines)
    return reading


def with_record(reading: Reading, source: Source, kind: str, problem: Phrase | None) -> Reading:
    """The reading with what is known of its source from outside."""
    size = source.size_bytes if source.size_bytes is not None else source.num_read
    record = replace(reading.source, path=source.label, kind=kind, size_bytes=size)
    reading.source = troubled(record, source.problem, problem)
    return reading


def kind_of_source(source: Source) -> str:
    """`sniff.kind_of` its head; where a file begins with a hole, of what follows the hole."""
    head = source.head
    if source.path is not None and head and not head.strip(b"\0"):
        head = _after_hole(source.path) or head
    kind = sniff.kind_of(head, name=source.label)
    if kind == sniff.SCRIPT and len(head) >= sniff.HEAD_BYTES and sniff.is_output(source.tail(sniff.TAIL_BYTES)):
        kind = sniff.LOG  # a program that prints itself first
    # A process that dies of a signal writes its stacks as well: its file is a log that tells an end.
    return sniff.LOG if kind == sniff.STACKS and _FATAL_MARK in head else kind


def _after_hole(path: str) -> bytes | None:
    """The first bytes of a file that are on disk: a log that was cut while its writer went on begins with a hole."""
    try:
        with open_plain(path) as file:
            file.seek(os.lseek(file.fileno(), 0, os.SEEK_DATA))
            return (file.read(sniff.HEAD_BYTES) or b"").lstrip(b"\0")
    except OSError:
        return None


def _read_log(stream: BinaryIO, source: Source, context: ReaderContext) -> Reading:
    aside = _tables_and_stacks(stream, source)
    text = aside if aside is not None else _unfolded(source)
    scanned = context.scan(io.BytesIO(text) if text is not None else stream, source.label)
    reading = context.interpret(scanned, source.label, source.mtime_s)
    if aside is not None:
        add_asides(reading, aside, source.label)
    return reading


def _unfolded(source: Source) -> bytes | None:
    """The text of a short log that a terminal broke at its width, with its lines whole; None of any other."""
    is_whole = source.size_bytes is not None and source.size_bytes <= len(source.head)
    if not is_whole:
        return None
    from allready.evidence.lines.unfold import unfolded

    return unfolded(source.head)


def scan_range(
    found: Found, start: int, stop: int, context: ReaderContext, envelopes: Sequence[Envelope] = (), **how: Any
) -> "Scanned":
    """The lines of a plain log whose first bytes lie in [start, stop); for `lines.merge.merged`.

    `envelopes`: what is around its lines; they go on from the part before.
    `how`: further arguments of `lines.scan.scan`.
    """
    with open_plain(found.path) as file:
        if envelopes:
            return context.scan(opened_part(file, start, stop, envelopes), found.label, **how)
        return context.scan(file, found.label, first_byte=start, last_byte=stop, **how)


def _tables_and_stacks(stream: BinaryIO, source: Source) -> bytes | None:
    """The whole of a log that also holds a table of nccl-tests or Python stacks, for their readers; else None.

    A table begins near the top; stacks stand at either end.
    """
    is_small = source.size_bytes is not None and source.size_bytes <= MAX_ASIDE_BYTES
    is_whole = source.size_bytes is not None and source.size_bytes <= len(source.head)
    tail = b""
    if is_small and source.path is not None:
        tail = b"" if is_whole else source.head[-_MAX_MARK_BYTES:] + source.tail(sniff.HEAD_BYTES)
    elif source.size_bytes is not None and not is_whole and source.size_bytes <= _MAX_MEMBER_BYTES:
        return stream.read()
    if not is_small or not (_has_mark(source.head) or _has_mark(tail)):
        return None
    return stream.read(MAX_ASIDE_BYTES + 1)


def _has_mark(data: bytes) -> bool:
    has_table = b"#" in data and any(mark in data for mark in _TABLE_MARKS)  # their lines begin with it
    return has_table or _STACK_MARK in data


def add_asides(reading: Reading, data: bytes, label: str) -> None:
    """Put a log's tables of nccl-tests and Python stacks into its reading."""
    if compiled_bytes(_STAMP).match(data) is not None:
        data = compiled_bytes(_STAMP).sub(b"", data)
    if any(mark in data for mark in _TABLE_MARKS):
        from allready.evidence.nccl_tests import read_nccl_tests

        tables = read_nccl_tests(data, label)
        reading.benches = [*reading.benches, *tables.benches]
        reading.processes = reading.processes or tables.processes  # NCCL's own lines tell more
        reading.source = _with_known(reading.source, tables.source)
    if _STACK_MARK in data:
        from allready.evidence.stacks.read import read_stacks

        reading.stacks = [*reading.stacks, *read_stacks(data, label).stacks]


def _with_known(log: SourceRecord, tables: SourceRecord) -> SourceRecord:
    """A log's record where lines that it did not understand are those of tables."""
    num = min(tables.num_understood, log.num_unknown)
    return replace(
        log,
        num_understood=log.num_understood + num,
        num_unknown=log.num_unknown - num,
        unknown_examples=tuple(e for e in log.unknown_examples if e.strip() in map(str.strip, tables.unknown_examples)),
    )


def _read_dump(data: bytes, label: str) -> Reading:
    from allready.evidence.flight.reader import read_dump

    return read_dump(data, label, name_hint=label)


def _read_ras(data: bytes, label: str) -> Reading:
    from allready.evidence.ras import read_ras

    return read_ras(data, label)


def _read_stacks(data: bytes, label: str) -> Reading:
    from allready.evidence.stacks.read import read_stacks

    return read_stacks(data, label)


def _read_node_status(data: bytes, label: str) -> Reading:
    from allready.evidence.node_status import read_node_status

    return read_node_status(data, label)


def _read_attempts(data: bytes, label: str) -> Reading:
    from allready.evidence.attempts import read_attempts

    return read_attempts(data, label)


def _read_report(data: bytes, label: str) -> Reading:
    record = SourceRecord(path=label, kind=sniff.REPORT, num_understood=1)
    return Reading(source=record, reports=[zlib.compress(data, 1)])


def _whole(read: Callable[[bytes, str], Reading], most: int = MAX_WHOLE_BYTES) -> "_Reader":
    """A reader that takes the whole source, or so many bytes of it."""

    def read_stream(stream: BinaryIO, source: Source, _: ReaderContext) -> Reading:
        data = stream.read(most)
        is_more = bool(len(data) == most and stream.read(1))
        return _with_cut(read(data, source.label), len(data) + is_more, most)

    return read_stream


def _with_cut(reading: Reading, num_bytes: int, most: int) -> Reading:
    if num_bytes > most:
        reading.source = troubled(reading.source, said("only its first {most} MiB were read", most=most >> 20))
    return reading


def _read_inspector(stream: BinaryIO, source: Source, _: ReaderContext) -> Reading:
    from allready.evidence.inspector import read_inspector

    return read_inspector(stream, source.label)


def _read_event_log(stream: BinaryIO, source: Source, _: ReaderContext) -> Reading:
    from allready.evidence.event_log import read_event_log

    return read_event_log(stream, source.label)


def _read_table(stream: BinaryIO, source: Source, context: ReaderContext) -> Reading:
    """nccl-tests prints its tables among NCCL's own lines: both readers get them."""
    data = stream.read(MAX_WHOLE_BYTES)
    whole = io.BufferedReader(_Both(data, stream))
    reading = context.interpret(context.scan(whole, source.label), source.label, source.mtime_s)
    add_asides(reading, data, source.label)
    return _with_cut(reading, MAX_WHOLE_BYTES + 1 if source.num_read > len(data) else 0, MAX_WHOLE_BYTES)


class _Both(io.RawIOBase):
    """Bytes that were read already, then the rest of their stream."""

    def __init__(self, data: bytes, rest: BinaryIO) -> None:
        self._parts = [io.BytesIO(data), rest]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview | bytearray", /) -> int:  # type: ignore[override]
        while self._parts:
            data = self._parts[0].read(len(buffer))
            if data:
                buffer[: len(data)] = data
                return len(data)
            del self._parts[0]
        return 0


_Reader = Callable[[BinaryIO, Source, ReaderContext], Reading]
_READERS: dict[str, _Reader] = {
    sniff.LOG: _read_log,
    sniff.ELASTIC_ERROR: _read_log,
    sniff.FLIGHT: _whole(_read_dump, MAX_DUMP_BYTES),
    sniff.RAS: _whole(_read_ras),
    sniff.STACKS: _whole(_read_stacks, MAX_STACKS_BYTES),
    sniff.NCCL_TESTS: _read_table,
    sniff.INSPECTOR: _read_inspector,
    sniff.NODE_STATUS: _whole(_read_node_status),
    sniff.EVENT_LOG: _read_event_log,
    sniff.ATTEMPTS: _whole(_read_attempts),
    sniff.REPORT: _whole(_read_report, MAX_REPORT_BYTES),
}
