"""One pass over a log: operations counted in order, interesting lines kept, the rest counted.

Time goes with the number of bytes, memory does not: one chunk of the log is in memory at a time.  Its lines go through
three sieves: those that are known (`templates`), those that may be operations of a new form (`operations`), and what
is left, which is searched for the signatures' anchors and for iteration markers (`residue`).
"""

import bisect
import itertools
from collections.abc import Callable, Sequence
from typing import BinaryIO

import numpy as np

from allready.evidence.lines.blocks import KeptBlocks
from allready.evidence.lines.chunk import APART, UNKNOWN, Lines
from allready.evidence.lines.coll import MARKER, MAX_BYTES, without_clocks
from allready.evidence.lines.feed import CHUNK, Chunk, ChunkFeed
from allready.evidence.lines.forms import Forms
from allready.evidence.lines.lane import Lane, LoopMemory
from allready.evidence.lines.last import LastLines
from allready.evidence.lines.line_buffer import LineBuffer, numbers_in, process_of, without_numbers
from allready.evidence.lines.literals import distinct, places_of
from allready.evidence.lines.marks import PADDING, WORDS, Marker
from allready.evidence.lines.model import LIMITS, RESTART, LineLimits, Mark, RawLine, Scanned
from allready.evidence.lines.native import Ints, Native, native
from allready.evidence.lines.operations import WORD, Operations, tag_of, writer
from allready.evidence.lines.planned import PlannedOperations
from allready.evidence.lines.quick import QuickLines, Sorted
from allready.evidence.lines.residue import ResidueHit, ResidueReader
from allready.evidence.lines.streams import Streams
from allready.evidence.lines.templates import Rows, Templates, Workspace, geometry
from allready.model.fill import said

_LESSON_BYTES = 256 << 10
"""Of the first log: from so many the fast lane learns what the others are compared with."""

_MAX_LINES = 32_768  # lines that are examined together
_MAX_FORMS = 64
"""Layouts that are learnt for one repeated line (its numbers have different widths)."""

_FEW = 64
_NONE: Ints = np.empty(0, np.int64)
_MAX_MARKED = 50_000
_MARKED_BYTES = 1_024  # of a line that says an iteration
_FRONT_BYTES = 160  # of a line, in which its writer is named
_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)


class ScanMemory:
    """What is remembered from one log to the next: it changes how long scanning takes and never what it gives.

    For one log at a time.
    """

    def __init__(self) -> None:
        self.loops = LoopMemory()
        self.workspace = Workspace()
        self._rows = Rows(bytearray())

    def rows(self, num_bytes: int) -> Rows:
        """The buffer of the log before, if it fits: clearing two megabytes takes as long as reading them."""
        if len(self._rows.buffer) != num_bytes:
            self._rows = Rows(bytearray(num_bytes))
        return self._rows


def scan(
    stream: BinaryIO,
    *,
    source: str = "-",
    first_byte: int = 0,
    last_byte: int | None = None,
    iteration_marker: str | None = None,
    on_bytes: Callable[[int], None] | None = None,
    limits: LineLimits = LIMITS,
    anchors: Sequence[str] | None = None,
    chunk_bytes: int = CHUNK,
    memory: ScanMemory | None = None,
    use_lane: bool = True,
    use_forms: bool = True,
    use_native: bool = True,
) -> Scanned:
    """Everything in the lines whose first byte lies in [first_byte, last_byte).

    A part of a file needs a stream that can seek; `merge` puts the parts together.  Ends with the stream or, at a read
    error, with a problem in the result.

    Args:
        on_bytes: called with the number of bytes that were read since its last call.
        use_lane: whether the fast lane (`lane`) may be used; it changes nothing but time.
        use_forms: whether lines are recognised by their forms (`forms`); it changes nothing but time.
        use_native: whether the compiled part (`native`) may be used, where it is; it changes nothing but time.

    Raises:
        UsageError: `iteration_marker` is not a regular expression with a group.
    """
    compiled = native() if use_native else None
    reader = ResidueReader(Marker(iteration_marker), anchors, limits.clip_bytes, compiled)
    start = max(0, first_byte - 1)
    if first_byte:
        stream.seek(start)
    memory = memory or ScanMemory()
    lane = Lane(reader.marker, limits, memory.loops, is_on=use_lane)
    feed = ChunkFeed(
        stream,
        start,
        size=chunk_bytes,
        piece=limits.line_bytes,
        overlap=limits.clip_bytes,
        on_bytes=on_bytes,
        first=_LESSON_BYTES if lane.needs_first_lesson else None,
        rows=memory.rows,
    )
    one = _Scan(feed, reader, lane, memory, source, limits, last_byte, use_forms, compiled)
    if not first_byte or feed.skip_line():
        one.run()
    return one.result()


class _Scan:
    """The state of one pass."""

    def __init__(
        self,
        feed: ChunkFeed,
        reader: ResidueReader,
        lane: Lane,
        memory: ScanMemory,
        source: str,
        limits: LineLimits,
        last_byte: int | None,
        use_forms: bool,
        compiled: Native | None,
    ) -> None:
        self._feed, self._reader, self._limits, self._last_byte = feed, reader, limits, last_byte
        self._rows, self._native = feed.rows, compiled
        self._templates = Templates(limits.templates, memory.workspace, compiled)
        self._streams = Streams(limits)
        self._operations = Operations(self._templates, self._streams, source)
        self._keeper = LineBuffer(limits)
        self._blocks = KeptBlocks(limits)
        self._out = Scanned()
        self._forms: dict[int, int] = {}  # repeat -> layouts learnt
        self._learnt: set[tuple[int, int]] = set()  # in this chunk: repeat and length
        self._head, self._tail = b"", b""
        self._long: int | None = None  # where the line began that does not fit
        self._is_long_kept = False
        self._marked: set[tuple[int, bytes]] = set()
        self._tagless: set[bytes] = set()
        self._tags: dict[bytes, str] = {}
        self._last = LastLines(limits)
        self._lane = lane
        self._planned = PlannedOperations(self._streams, source)
        self._quick: QuickLines | None = None
        if use_forms and not reader.marker.is_own:
            forms = Forms(reader.anchors, reader.blocks, compiled)
            self._quick = QuickLines(forms, self._keeper, self._last, limits, compiled)

    def run(self) -> None:
        """To the end of the stream or of the part."""
        for chunk in self._feed.chunks():
            is_after = self._last_byte is not None and chunk.offset >= self._last_byte and self._long is None
            if is_after and not self._blocks.is_open(chunk.offset):
                break
            if is_after and chunk.is_open:
                self._blocks.feed_long(bytes(self._feed.buffer[: self._limits.clip_bytes]), chunk.offset)
                break
            if chunk.is_open:
                self._open_chunk(chunk)
            else:
                self._chunk(chunk)
            if self._templates.make_room():
                self._forms.clear()
            self._learnt.clear()

    def _open_chunk(self, chunk: Chunk) -> None:
        """Pieces of a line that does not fit."""
        if self._long is None:
            self._long, self._is_long_kept = chunk.offset, False
            self._blocks.feed_long(bytes(self._feed.buffer[: self._limits.clip_bytes]), chunk.offset)
        number = self._out.num_lines + 1
        self._is_long_kept |= self._pieces(0, chunk.length, chunk.available, number, self._long, 0)
        self._out.num_bytes += chunk.length
        self._keep_edges(chunk.length)

    def _keep_edges(self, length: int) -> None:
        """Take what the next `length` bytes have of the log's beginning and end."""
        most, buffer = self._limits.edge_bytes, self._feed.buffer
        if len(self._head) < most:
            self._head += bytes(buffer[: min(length, most - len(self._head))])
        last = bytes(buffer[max(0, length - most) : length])
        self._tail = last if len(last) == most else (self._tail + last)[-most:]

    def _chunk(self, chunk: Chunk) -> None:
        if self._fast(chunk):
            return
        if self._native is None:
            ends = np.flatnonzero(self._rows.bytes[: chunk.length] == 10)
        else:
            ends = self._native.newlines(self._rows.bytes, chunk.length)
        starts = np.empty_like(ends)
        starts[0] = 0
        starts[1:] = ends[:-1] + 1
        num = len(starts)
        if self._last_byte is not None:
            num = int(np.searchsorted(starts, self._last_byte - chunk.offset))
            if self._long is not None:
                num = max(num, 1)
        for first in range(0, num, _MAX_LINES):
            lines = self._some(chunk, starts, ends, first, min(first + _MAX_LINES, num))
            self._lines(lines)
            self._blocks.feed(lines, is_first_fed=self._long is not None)
            self._lane.learn(lines)
            self._out.num_lines += len(lines)
            self._long = None
        if num:
            is_cut = self._feed.is_newline_added and num == len(starts)
            length = int(ends[num - 1]) + (0 if is_cut else 1)
            self._out.num_bytes += length
            self._keep_edges(length)
        if num < len(starts) and self._blocks.is_open(chunk.offset + int(starts[num])):
            self._blocks.feed_after(self._some(chunk, starts, ends, num, min(num + _MAX_LINES, len(starts))))

    def _fast(self, chunk: Chunk) -> bool:
        """Take a chunk whole, where it is what the fast lane is for; whether it was."""
        end = chunk.offset + chunk.length
        is_part = self._last_byte is not None and end > self._last_byte
        if is_part or self._long is not None or self._blocks.is_open(chunk.offset):
            return False
        plan = self._lane.plan(
            self._feed.buffer, self._rows, chunk.length, base=self._out.num_lines, offset=chunk.offset
        )
        if plan is None or len(self._streams.builders) + plan.num_comms > self._limits.streams:
            return False
        for line in plan.lines:
            self._keeper.add(line, plan.process)
        for last in (plan.lines[-1] if plan.lines else None, plan.last):
            if last is not None:
                self._last.set(plan.process, last)
        numbers = np.arange(plan.base, plan.base + plan.num_lines + 1)
        for first, run in plan.runs:
            num = run.match.num
            self._streams.add(*self._planned.targets_and_codes(run), numbers[first - plan.base :][:num], None)
            self._out.num_coll += num
        self._out.num_blank += plan.num_blank
        self._out.num_lines += plan.num_lines
        length = chunk.length - self._feed.is_newline_added
        self._out.num_bytes += length
        self._keep_edges(length)
        return True

    def _some(self, chunk: Chunk, starts: Ints, ends: Ints, first: int, end: int) -> Lines:
        """Lines `first` to `end` of a chunk."""
        some = starts[first:end]
        lengths = ends[first:end] - some
        return Lines(self._feed.buffer, self._rows, self._out.num_lines, chunk.offset, some, lengths, self._native)

    def _lines(self, lines: Lines) -> None:
        is_long = lines.lengths >= self._limits.line_bytes
        if self._long is not None:
            is_long[0], lines.is_blank[0] = True, False
        self._operations.match(lines)
        wanted = ~(lines.is_blank | is_long)
        left = np.flatnonzero(wanted & (lines.targets == UNKNOWN))
        known = Sorted(left) if self._quick is None else self._quick.sort_out(lines, left)
        usual = known.usual
        data, size, places = lines.spliced(usual)
        found = places_of(data, size, (WORD,)) if data.find(MARKER, 0, size) >= 0 else _NONE
        if len(found):
            candidates = usual[distinct(np.searchsorted(places, found, "right") - 1)]
            if self._operations.learn(lines, candidates):
                left = left[lines.targets[left] == UNKNOWN]
                usual = usual[lines.targets[usual] == UNKNOWN]
                data, size, places = lines.spliced(usual)
        hits, marks = self._reader.read(data, size, places)
        marked, iterations = usual[marks.lines], marks.iterations
        if len(known.marked):
            marked, iterations = self._marked_in(lines, known.marked, marked, iterations)
        hit_at = usual[[hit.line for hit in hits]] if hits else usual[:0]
        self._add_examples(lines, left, hit_at, known)
        events: list[tuple[int, int, ResidueHit | int | None]] = []
        events += [(index, 0, iteration) for index, iteration in self._marks(marked, iterations, lines)]
        events += zip(hit_at.tolist(), itertools.repeat(1), hits)
        events += [(index, 2, None) for index in np.flatnonzero(is_long).tolist()]
        if len(events) > len(hits):
            events.sort(key=lambda one: one[:2])
        num_rest = len(left) - len(hits) - len(known.interesting)
        self._count(lines, num_rest + self._happen(events, lines, known))

    def _marked_in(self, lines: Lines, at: Ints, others: Ints, iterations: Ints) -> tuple[Ints, Ints]:
        """The markers of the lines `at` and those found in `others`, by line."""
        if self._native is None:
            data, size, places = lines.spliced(at)
            marks = self._reader.marker.find(data, size, places)
        else:
            marks = self._reader.marker.find_in(self._native, self._rows.bytes, lines.starts, lines.lengths, at)
        both, numbers = np.concatenate((at[marks.lines], others)), np.concatenate((marks.iterations, iterations))
        if len(others):
            order = np.argsort(both, kind="stable")
            both, numbers = both[order], numbers[order]
        return both, numbers

    def _happen(self, events: list[tuple[int, int, ResidueHit | int | None]], lines: Lines, known: Sorted) -> int:
        """Take in the markers, hits and long lines of a chunk, and what is kept of known forms, in their order.

        Returns how many of the long lines are of no interest.
        """
        at = [index for index, _, _ in events]
        offsets, lengths = (lines.starts[at] + lines.offset).tolist(), lines.lengths[at].tolist()
        num_before = np.cumsum(lines.targets >= 0)  # a line that is read is no operation itself
        num_put = num_rest = 0
        view = memoryview(lines.buffer)
        for (index, _, event), offset, length in zip(events, offsets, lengths, strict=True):
            number = lines.base + index + 1
            if isinstance(event, int):
                if self._streams.wants(event):
                    begin = offset - lines.offset
                    text = bytes(view[begin : begin + min(length, _MARKED_BYTES)])
                    self._mark(event, text, number, int(num_before[index]))
                continue
            num_put = self._keep_until(known, num_put, index)
            if event is not None:
                repeat = self._put(event, number, offset)
                if repeat >= 0 and event.is_whole and not event.is_marked:
                    self._learn_repeat(repeat, event.text, lines, index)
            elif not self._long_line(lines, index, int(num_before[index])):
                num_rest += 1
        self._keep_until(known, num_put, len(lines))
        return num_rest

    def _keep_until(self, known: Sorted, num_put: int, index: int) -> int:
        """Keep the lines of known forms that stand before; how many of the chunk are put then."""
        end = bisect.bisect_left(known.kept_at, index, num_put)
        if end > num_put and known.kept is not None:
            self._keeper.put_all(known.kept.part(num_put, end))
        return end

    def _add_examples(self, lines: Lines, left: Ints, hits: Ints, known: Sorted) -> None:
        """Examples of lines of no interest, until there are enough."""
        room = self._limits.rest_examples - len(self._out.rest_examples)
        if room <= 0:
            return
        others = np.setdiff1d(np.setdiff1d(left, hits, assume_unique=True), known.interesting, assume_unique=True)
        self._out.rest_examples += [
            lines.text(i, self._limits.clip_bytes).rstrip(b"\r") for i in others[:room].tolist()
        ]

    # -- lines that are no operations ------------------------------------------------------------------------------

    def _marks(self, at: Ints, iterations: Ints, lines: Lines) -> list[tuple[int, int]]:
        """Count the markers of the lines `at`; returns those that are to be kept, as (line, iteration)."""
        if not len(at):
            return []
        self._see(iterations, lines.base + at + 1)
        self._streams.expect(iterations)
        wanted = np.flatnonzero(iterations % self._streams.mark_step == 0)
        if len(wanted) > _FEW:  # of lines that begin alike and say the same iteration the first will do
            begin = self._rows.take(lines.starts[at[wanted]], 16)
            _, firsts = np.unique(iterations[wanted].view(np.uint64) * _MIX[0] + begin @ _MIX[1:], return_index=True)
            wanted = wanted[np.sort(firsts)]
        return list(zip(at[wanted].tolist(), iterations[wanted].tolist(), strict=True))

    def _see(self, iterations: Ints, numbers: Ints) -> None:
        seen, highest = self._out.iterations, int(iterations.max())
        seen.num_lines += len(iterations)
        if seen.first is None:
            seen.first, seen.first_line = int(iterations[0]), int(numbers[0])
        before = np.concatenate(([iterations[0] if seen.last is None else seen.last], iterations[:-1]))
        again = np.flatnonzero((iterations <= seen.first) & (before > iterations + RESTART))
        if len(again):
            seen.restart_line = int(numbers[again[-1]])
        seen.last, seen.last_line = int(iterations[-1]), int(numbers[-1])
        seen.highest = highest if seen.highest is None else max(seen.highest, highest)

    def _mark(self, iteration: int, text: bytes, number: int, num_before: int) -> None:
        key = (iteration, text[:16])
        if self._streams.wants(iteration) and key not in self._marked:
            if len(self._marked) > _MAX_MARKED:
                self._marked.clear()
            self._marked.add(key)
            self._streams.mark(Mark(iteration=iteration, number=number, tag=self._tag(text)), num_before)

    def _tag(self, text: bytes) -> str | None:
        """Who wrote a line; what stands before its count is read once, whenever it was written, and once whatever
        numbers it has where it names no process."""
        small = text[: _FRONT_BYTES + 4].lower()
        places = [place for word in WORDS if (place := small.find(word)) >= 0]
        front = text[: min(_FRONT_BYTES, *places)] if places else text[:_FRONT_BYTES]
        known = self._tags.get(front)
        if known is not None:
            return known
        form = without_numbers(front)
        if form in self._tagless:
            return None
        front = without_clocks(front)
        if front not in self._tags:
            tag = tag_of(writer(text))
            if tag is None:
                if len(self._tagless) < _MAX_MARKED:
                    self._tagless.add(form)
                return None
            if len(self._tags) >= _MAX_MARKED:
                self._tags.clear()
            self._tags[front] = tag
        return self._tags[front]

    def _put(self, hit: ResidueHit, number: int, offset: int) -> int:
        """Keep a line; the index of the repeat that it went into instead, or -1."""
        line = RawLine(number=number, offset=offset, text=hit.text)
        found = process_of(hit.text) if hit.is_nccl else None
        process = "" if found is None else found[0]
        if process:
            self._last.set(process, line)
        repeat = self._keeper.add(line, process)
        if repeat < 0 and hit.is_block:
            self._blocks.begin(line)
        return repeat

    def _learn_repeat(self, repeat: int, text: bytes, lines: Lines, index: int) -> None:
        """Lines of this form are only counted from the next chunk on."""
        forms = self._forms.get(repeat, 0)
        if len(text) >= MAX_BYTES or forms >= _MAX_FORMS or (repeat, len(text)) in self._learnt:
            return
        self._learnt.add((repeat, len(text)))
        found = process_of(text) if self._keeper.repeats[repeat].process else None
        checked = numbers_in(text, None if found is None else found[1])
        layout = self._templates.layout(geometry(len(text), checked=tuple(checked)))
        row = self._rows.take(lines.starts[index : index + 1], len(text))
        hashed = self._templates.hash(layout, row)
        if int(self._templates.look_up(layout, hashed, row)[0]) < 0:
            self._templates.add(layout, hashed, -1 - repeat, 0)
            self._forms[repeat] = forms + 1

    def _long_line(self, lines: Lines, index: int, num_before: int) -> bool:
        """A long line of which the end is in the chunk; whether it is interesting."""
        start, end = int(lines.starts[index]), int(lines.starts[index] + lines.lengths[index])
        is_rest = index == 0 and self._long is not None
        offset = self._long if is_rest and self._long is not None else lines.offset + start
        is_kept = self._pieces(start, end, end, lines.base + index + 1, offset, num_before)
        return is_kept or (is_rest and self._is_long_kept)

    def _pieces(self, start: int, stop: int, available: int, number: int, offset: int, num_before: int) -> bool:
        """Look at a long line piece by piece; whether there was anything of interest."""
        piece, overlap = self._limits.line_bytes, self._limits.clip_bytes
        if self._quick is not None and self._quick.is_plain(self._one_line(start, min(stop + overlap, available))):
            return False
        whole = bytes(self._feed.buffer[start : min(stop + overlap, available)])
        places = self._reader.places(whole)
        is_kept = False
        for at in range(start, stop, piece):
            end = min(at + piece + overlap, available)
            if places is not None and not np.diff(np.searchsorted(places, (at - start, end - start)))[0]:
                continue
            data = bytes(self._feed.buffer[at:end]) + b"\n" * PADDING
            before = piece if at + piece < stop or stop < available else None
            hits, marks = self._reader.read(data, end - at, np.zeros(1, np.int64), before=before)
            if len(marks.lines):
                self._see(marks.iterations, np.full(len(marks.iterations), number))
                self._mark(int(marks.iterations[0]), b"", number, num_before)
            for hit in hits:
                self._put(hit, number, offset)
                is_kept = True
        return is_kept

    def _one_line(self, start: int, end: int) -> Lines:
        """Bytes of the buffer as a line."""
        one = np.array([start], np.int64)
        return Lines(self._feed.buffer, self._rows, 0, 0, one, end - one, self._native)

    # -- counting --------------------------------------------------------------------------------------------------

    def _count(self, lines: Lines, num_rest: int) -> None:
        self._operations.settle(lines)
        out, targets = self._out, lines.targets
        is_coll = lines.is_coll
        num_coll, num_blank = int(np.count_nonzero(is_coll)), int(np.count_nonzero(lines.is_blank))
        out.num_coll += num_coll
        out.num_blank += num_blank
        out.num_rest += num_rest
        out.num_coll_apart += int(np.count_nonzero(targets == APART))
        with_stream = np.flatnonzero(targets >= 0)
        if len(with_stream):
            times = lines.times[with_stream]
            self._streams.add(
                targets[with_stream].astype(np.uint16),
                lines.codes[with_stream],
                with_stream + lines.base + 1,
                None if np.isnan(times).all() else times,
            )
        repeated = np.flatnonzero((targets < 0) & (targets > APART))
        if len(repeated):
            indexes = -1 - targets[repeated]
            counts = np.bincount(indexes)
            last = np.zeros(len(counts), np.int64)
            last[indexes] = repeated  # of equal indexes the last one stays
            for index in np.flatnonzero(counts).tolist():
                at = int(last[index])
                self._keeper.repeated(
                    index, int(counts[index]), lines.base + at + 1, lines.offset + int(lines.starts[at]), lines.text(at)
                )
        self._last.add(lines, self._streams.builders, self._keeper.repeats)

    # -- the end ---------------------------------------------------------------------------------------------------

    def result(self) -> Scanned:
        """Everything that was found."""
        self._blocks.finish()
        out, keeper = self._out, self._keeper
        builders = self._streams.finish()
        out.streams = [builder.stream for builder in builders]
        out.stream_tags = [builder.tag for builder in builders]
        out.marks = self._streams.marks
        out.last_lines = self._last.found
        out.head, out.tail = self._head, self._tail
        keeper.close()
        out.lines, out.num_head = keeper.lines, keeper.num_head
        out.repeats, out.num_dropped = keeper.repeats_in_order(), keeper.num_dropped
        if self._feed.problem is not None:
            out.problems.append(self._feed.problem)
        if out.num_coll_apart:
            form = (
                "{num} operations belong to more than {most} communicators: they are counted, their order is not known"
            )
            out.problems.append(said(form, num=out.num_coll_apart, most=self._limits.streams))
        if self._blocks.num_cut:
            out.problems.append(said("some blocks (tracebacks, tables) were cut: there were too many"))
        return out
