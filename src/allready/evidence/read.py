"""All sources -> all readings, over a few processes where there is enough to read."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec
from msgspec import Struct, field

from allready import garbage
from allready.evidence import sniff
from allready.evidence.inputs import Found, unpack
from allready.evidence.inputs.find import STDIN
from allready.evidence.inputs.source import Source
from allready.evidence.inputs.workers import LostTask, Workers, can_fork
from allready.evidence.readers import (
    DEFAULT,
    ReaderContext,
    ReadOptions,
    kind_of_source,
    read_found,
    read_source,
    scan_range,
    with_record,
)
from allready.evidence.reading import Reading
from allready.evidence.sharing import Shared
from allready.model import SourceRecord
from allready.model.events import troubled
from allready.model.fill import said
from allready.model.finding import Phrase

if TYPE_CHECKING:
    from allready.evidence.lines.model import Scanned

__all__ = ["ReadOptions", "ReaderPool", "ReadingProgress", "read_all", "read_found", "read_source"]

SPLIT_BYTES = 64 << 20  # A log above this may be read in parts by several workers
MAX_WORKERS = 8  # by default: each takes memory, and beyond so many the disk is the limit
_WORKER_BYTES = 1 << 19  # of input, that make one more worker worth its start
_SPAWN_BYTES = 1 << 22
_SMALL_BYTES = 1 << 22  # a file that is read in milliseconds
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
_MAX_AHEAD = 20_000  # files that are known before the first is read
_MAX_REPORTS_BYTES = 32 << 20  # of saved reports, compressed
_FEW = 1_000  # readings whose memory does not matter, as far as it depends on their number
_MAX_BARE = 1_000  # records of one kind of sources that gave nothing


class ReadingProgress(Struct, frozen=True, kw_only=True):
    """How far the reading is.  `total_bytes` is None while the walk still goes on."""

    done_bytes: int
    total_bytes: int | None


class _Task(NamedTuple):
    """A tuple, since thousands are sent."""

    order: int
    found: Found
    part: tuple[int, int, int] | None = None  # number, first byte, byte after the last


class _Part(Struct, frozen=True, kw_only=True):
    """What one part of a log gave."""

    task: _Task
    scanned: "Scanned"


_Answer = tuple[int, Reading | bytes] | _Part
"""What a worker sends: the order of a source and its reading, see `packed`; or a part."""


def packed(reading: Reading) -> Reading | bytes:
    """What to send: MessagePack, which takes a seventh of a pickle's time (18 us instead of 124 us there and back).

    The reading itself, which is then pickled, where MessagePack has no form for it: the columns of a dump, half a
    surrogate pair in a file's name, a number above 64 bits.
    """
    try:
        return _ENCODER.encode(reading)
    except (TypeError, UnicodeEncodeError, OverflowError):
        return reading


def unpacked(sent: Reading | bytes) -> Reading:
    """The reading that was sent."""
    return _decoder().decode(sent) if isinstance(sent, bytes) else sent


_ENCODER = msgspec.msgpack.Encoder()


@functools.cache
def _decoder() -> "msgspec.msgpack.Decoder[Reading]":
    return msgspec.msgpack.Decoder(Reading)


def _is_small(task: _Task) -> bool:
    return task.part is None and task.found.size_bytes <= _SMALL_BYTES


def _work(context: ReaderContext, task: _Task, took: Callable[[int], None]) -> "Iterator[tuple[_Answer, bool]]":
    """What a worker does, with a context of its own.

    What bears the name of the file itself comes last: members of archives have longer names.
    """
    if task.part is None:
        for reading in read_found(task.found, context, took):
            yield (task.order, packed(reading)), reading.source.path == task.found.label
        return
    part = _Part(task=task, scanned=scan_range(task.found, task.part[1], task.part[2], context, on_bytes=took))
    yield part, True


class _Results(Struct):
    """Readings by the order of their sources; of sources that gave nothing only so many are kept one by one."""

    kept: list[tuple[int, int, Reading]] = []
    bare: dict[str, list[int]] = {}  # kind -> number, those left out, their bytes
    reports_bytes: int = 0
    shared: Shared = field(default_factory=Shared)

    def add(self, index: int, reading: Reading) -> None:
        record = reading.source
        num_bytes = sum(map(len, reading.reports))
        if num_bytes:
            self.reports_bytes += num_bytes
            if self.reports_bytes > _MAX_REPORTS_BYTES:
                why = said("left out: the reports before it take {most} MiB", most=_MAX_REPORTS_BYTES >> 20)
                reading.reports, reading.source = (), troubled(record, None if record.problem else why)
                record = reading.source
        is_bare = not any(getattr(reading, name) for name in Reading.__struct_fields__ if name != "source")
        if is_bare:
            counts = self.bare.setdefault(record.kind, [0, 0, 0])
            counts[0] += 1
            if counts[0] > _MAX_BARE:
                counts[1] += 1
                counts[2] += record.size_bytes
                return
        if len(self.kept) >= _FEW:
            self.shared.put_into(reading)
        self.kept.append((index, len(self.kept), reading))

    def readings(self) -> list[Reading]:
        out = [reading for _, _, reading in sorted(self.kept, key=lambda entry: entry[:2])]
        for kind, (_, more, num_bytes) in sorted(self.bare.items()):
            if more:
                record = SourceRecord(path=f"({more:,} more)", kind=kind, size_bytes=num_bytes)
                out.append(Reading(source=record))
        return out


class ReaderPool:
    """Context manager: shares the files among as many workers as they are worth, reads them, ends the workers.

    A process may be forked only while it has one thread.  So entering first imports the readers, with numpy kept from
    starting threads of its own until the pool's end, and then forks the workers, which takes milliseconds; they begin
    at once.  Start threads, and import what this process needs later, between entering and `read`.  Where this process
    has threads already, the workers are spawned instead.  One pool at a time, and no other child is started meanwhile:
    it would inherit numpy's setting.
    """

    def __init__(
        self, items: Iterable[Found | SourceRecord], *, options: ReadOptions = DEFAULT, workers: int | None = None
    ) -> None:
        self._context = ReaderContext(options)
        walk = iter(items)
        # A folder gives its files in any order; reports should not depend on it.
        self._first = sorted(islice(walk, _MAX_AHEAD), key=_name)
        following = next(walk, None)
        self._is_all = following is None
        self._rest: Iterable[Found | SourceRecord] = () if following is None else chain([following], walk)
        self.total_bytes = sum(item.size_bytes for item in self._first if isinstance(item, Found))
        self._num = max(1, workers if workers is not None else min(MAX_WORKERS, len(os.sched_getaffinity(0))))
        self._results = _Results()
        self._done_bytes = 0
        self._progress: Callable[[ReadingProgress], None] = lambda _: None
        self._parts = _Parts(self._context)
        self._alone: list[tuple[int, Found]] = []  # what this process reads itself
        self._pool: Workers[_Task, _Answer] | None = None
        self._answers: Iterator[_Answer | LostTask[_Task]] = iter(())
        self._on_exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(_without_blas_threads())
            num = min(self._num, -(-self.total_bytes // _WORKER_BYTES)) if self._is_all else self._num
            if num > 1 and (can_fork() or self.total_bytes > _SPAWN_BYTES or not self._is_all):
                _load_readers()
                work = functools.partial(_work, ReaderContext(self._context.options))
                self._pool = stack.enter_context(Workers(num, work, is_small=_is_small))
            self._begin()
            stack.enter_context(garbage.searched_seldom())
            self._on_exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool = None
        self._on_exit.__exit__(kind, error, trace)

    def _begin(self) -> None:
        """Sort out who reads what, and give the workers the first of it."""
        shared: list[tuple[int, Found]] = []
        for index, item in enumerate(self._first):
            if isinstance(item, SourceRecord):
                self._results.add(index, Reading(source=item))
            elif self._pool is None or item.path == STDIN or item.is_open_pipe:
                self._alone.append((index, item))
            else:
                shared.append((index, item))
        if self._pool is not None:
            shared.sort(key=lambda entry: -entry[1].size_bytes)
            tasks = chain(
                (task for index, found in shared for task in self._tasks(index, found)),
                (_Task(index, found) for index, found in self._following()),
            )
            self._answers = self._pool.run(tasks, self._took)

    def read(self, progress: Callable[[ReadingProgress], None] = lambda _: None) -> list[Reading]:
        """Every source's reading, ordered by name.

        Args:
            progress: called now and then, at least ten times a second while workers read.
        """
        self._progress = progress
        for index, found in chain(self._alone, () if self._pool is not None else self._following()):
            for reading in read_found(found, self._context, self._took):
                self._results.add(index, reading)
        for answer in self._answers:
            self._take(answer)
        if self._pool is not None:
            self._pool.end()
        return self._results.readings()

    def _took(self, num_bytes: int) -> None:
        self._done_bytes += num_bytes
        self._progress(
            ReadingProgress(done_bytes=self._done_bytes, total_bytes=self.total_bytes if self._is_all else None)
        )

    def _following(self) -> Iterator[tuple[int, Found]]:
        for index, item in enumerate(self._rest, start=len(self._first)):
            if isinstance(item, SourceRecord):
                self._results.add(index, Reading(source=item))
            else:
                yield index, item

    def _take(self, answer: "_Answer | LostTask[_Task]") -> None:
        if isinstance(answer, LostTask):
            task = answer.task
            if task.part is None:
                record = SourceRecord(path=task.found.label, kind="unread", size_bytes=task.found.size_bytes)
                self._results.add(task.order, Reading(source=troubled(record, answer.why)))
                return
            index, whole = task.order, self._parts.take(task, None, answer.why)
        elif isinstance(answer, _Part):
            index, whole = answer.task.order, self._parts.take(answer.task, answer.scanned)
        else:
            index, whole = answer[0], self._arrived(*answer)
        if whole is not None:
            self._results.add(index, whole)

    def _arrived(self, index: int, sent: Reading | bytes) -> Reading:
        try:
            return unpacked(sent)
        except msgspec.ValidationError as error:
            name = _name(self._first[index]) if index < len(self._first) else f"(source {index + 1})"
            problem = said("what was read of it did not arrive: {error}", error=error)
            return Reading(source=troubled(SourceRecord(path=name, kind="unread"), problem))

    def _tasks(self, index: int, found: Found) -> Iterator[_Task]:
        """One task, or one for each part of a log that is too long for one worker."""
        share = self.total_bytes // self._num
        if found.size_bytes >= 2 * SPLIT_BYTES and found.size_bytes > share * 0.6:
            ranges = self._parts.split(found, index, self._num)
            if ranges:
                for number, (start, stop) in enumerate(ranges):
                    yield _Task(index, found, (number, start, stop))
                return
        yield _Task(index, found)


class _Split(Struct):
    """A log that is read in parts: what came of it, by number, and how many parts are missing."""

    source: Source
    num_missing: int
    scanned: dict[int, "Scanned"] = {}
    problem: Phrase | None = None


class _Parts:
    """Logs that are read in parts."""

    def __init__(self, context: ReaderContext) -> None:
        self._context = context
        self._splits: dict[int, _Split] = {}

    def split(self, found: Found, index: int, workers: int) -> list[tuple[int, int]]:
        """Ranges of bytes to read apart; none when it is no plain log."""
        from allready.evidence.lines.model import split_ranges

        sources = unpack(found)  # while it is there the file is open
        first = next(sources, None)
        if not isinstance(first, Source) or first.path is None or first.size_bytes is None or first.has_holes:
            return []  # a hole is passed over, and its bytes belong to no part
        if not all(one.is_optional for one in first.envelopes):
            return []  # a part begins in the middle of the file, whose lines are counted from its beginning
        kinds = self._context.options.kinds
        if kind_of_source(first) != sniff.LOG or (kinds and sniff.LOG not in kinds):
            return []
        ranges = split_ranges(first.size_bytes, workers, smallest_bytes=SPLIT_BYTES)
        if len(ranges) < 2:
            return []
        self._splits[index] = _Split(first, len(ranges))
        return ranges

    def take(self, task: _Task, scanned: "Scanned | None", why: Phrase | None = None) -> Reading | None:
        """One part, None for a part that is lost; the reading when this was the last one that was missing."""
        assert task.part is not None
        number, start, stop = task.part
        split = self._splits[task.order]
        if scanned is None:
            form = "bytes {start} to {stop} are missing: {why}"
            split.problem = said(form, start=f"{start:,}", stop=f"{stop:,}", why=why)
        else:
            split.scanned[number] = scanned
        split.num_missing -= 1
        if split.num_missing:
            return None
        from allready.evidence.lines.merge import merged

        del self._splits[task.order]
        whole = merged([split.scanned[number] for number in sorted(split.scanned)])
        reading = self._context.interpret(whole, split.source.label, split.source.mtime_s)
        return with_record(reading, split.source, sniff.LOG, split.problem)


def read_all(
    items: Iterable[Found | SourceRecord],
    *,
    options: ReadOptions = DEFAULT,
    workers: int | None = None,
    progress: Callable[[ReadingProgress], None] = lambda _: None,
) -> list[Reading]:
    """Every source's reading, ordered by name.

    `workers`: most processes besides this one; by default as many as there are CPUs, up to 8.
    """
    with ReaderPool(items, options=options, workers=workers) as pool:
        return pool.read(progress)


def _name(item: Found | SourceRecord) -> str:
    return item.label if isinstance(item, Found) else item.path


def _load_readers() -> None:
    """Import what forked workers will need, once for all of them."""
    import allready.evidence.lines.scan
    import allready.evidence.log  # noqa: F401
    from allready.signatures import table

    table.anchors()


@contextlib.contextmanager
def _without_blas_threads() -> Iterator[None]:
    """numpy's linear algebra, imported within, starts no threads: nothing here needs them.

    A process with threads cannot be forked safely, and starting them takes a third of the time of importing numpy.
    """
    before = os.environ.get(_BLAS_THREADS)
    os.environ[_BLAS_THREADS] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_BLAS_THREADS]
        else:
            os.environ[_BLAS_THREADS] = before
