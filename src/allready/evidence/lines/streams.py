"""Gathers operations by process and communicator, in order, a million lines at a time."""

import functools
import itertools
import zlib
from collections.abc import Collection, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from allready.evidence.lines.coll import CollLine
from allready.evidence.lines.model import LineLimits, Mark
from allready.evidence.lines.native import Floats, Ints
from allready.evidence.lines.templates import Codes
from allready.evidence.reading import BLOCK, OpShape, OpStream
from allready.model import Origin

MAX_SHAPES = 65_000
"""Different operations distinguished in one stream; the rest goes by name only (`OpShape.count` is -1 then)."""

MAX_NAMES = 500
_FEW_BYTES = 4_096
_WINDOW = 1 << 19
_MOST_CELLS = 1 << 18  # of the operations of all streams, counted together
_MAX_PENDING = 1 << 22


def shape_code(shapes: list[OpShape], known: dict[OpShape, int], counts: list[int], shape: OpShape) -> int:
    """The code of a shape, given out where it is new; beyond `MAX_SHAPES` one code for every name."""
    code = known.get(shape)
    if code is None and len(shapes) >= MAX_SHAPES:
        name = shape.name if len(shapes) < MAX_SHAPES + MAX_NAMES else ""
        shape = OpShape(name=name, count=-1, dtype="", redop="", root=-1)
        code = known.get(shape)
    if code is None:
        code = known[shape] = len(shapes)
        shapes.append(shape)
        counts.append(0)
    return code


def packed(codes: Codes) -> bytes:
    """One block."""
    data = codes.astype("<u2", copy=False).tobytes()
    return _compressed(data) if len(data) <= _FEW_BYTES else zlib.compress(data, 1)


@functools.lru_cache(maxsize=256)  # the ranks of a job do the same
def _compressed(data: bytes) -> bytes:
    return zlib.compress(data, 1)


def unpacked(block: bytes) -> Codes:
    """The codes of one block."""
    return np.frombuffer(zlib.decompress(block), "<u2").astype(np.uint16, copy=False)


def thinned_step(values: Sequence[int] | Ints, most: int) -> int:
    """The smallest power of two of which at most `most` of the values are multiples.

    It depends on the set of values only, so it does not matter in which portions they came.
    """
    step, left = 1, np.asarray(values, np.int64)
    while len(left) > most and step < 1 << 62:
        step *= 2
        left = left[left % step == 0]
    return step


class Builder(Struct):
    """A stream in the making."""

    stream: OpStream
    tag: str | None
    known: dict[OpShape, int] = {}
    pending: list[Codes] = []
    num_pending: int = 0
    time_step: int = 1
    last_second: int | None = None

    def pack(self, *, all_of_it: bool) -> None:
        """Compress what has gathered, in whole blocks where not `all_of_it`."""
        if not self.num_pending:
            return
        codes = self.pending[0] if len(self.pending) == 1 else np.concatenate(self.pending)
        end = len(codes) if all_of_it else len(codes) // BLOCK * BLOCK
        self.stream.blocks += [packed(codes[a : min(a + BLOCK, end)]) for a in range(0, end, BLOCK)]
        self.pending = [codes[end:].copy()] if end < len(codes) else []
        self.num_pending = len(codes) - end


class Streams:
    """All streams of one log."""

    def __init__(self, limits: LineLimits) -> None:
        self.builders: list[Builder] = []
        self._limits = limits
        self._by_key: dict[tuple[str, int, str], int] = {}
        self._window: list[tuple[Codes, Codes, Ints, Floats | None]] = []
        self._num_window = 0
        self._num_pending = 0
        self._new_marks: list[tuple[int, Mark]] = []
        self._marks: dict[tuple[int, str | None], Mark] = {}
        self.mark_step = 1

    def index(self, line: CollLine) -> int | None:
        """The stream of one operation; None when it is not there.

        The prefix is no part of a stream's identity: lines that were torn by another process have strange ones.
        """
        return self._by_key.get((line.host, line.pid, line.comm))

    def code(self, index: int, shape: OpShape) -> int:
        """The code of an operation in one stream.  Codes are given out in the order in which they are asked for."""
        one = self.builders[index]
        return shape_code(one.stream.shapes, one.known, one.stream.counts, shape)

    def codes(self, operations: Sequence[tuple[int, int, OpShape]]) -> list[int]:
        """The codes of operations, each a place, a stream and a shape, given out in the order of their places."""
        given, builders = len(operations) * [0], self.builders
        for which in sorted(range(len(operations)), key=[place for place, _, _ in operations].__getitem__):
            _, index, shape = operations[which]
            one = builders[index]
            given[which] = shape_code(one.stream.shapes, one.known, one.stream.counts, shape)
        return given

    def new(self, line: CollLine, tag: str | None, origin: Origin) -> int | None:
        """The stream of an operation that has none yet; None when there are too many."""
        if len(self.builders) >= self._limits.streams:
            return None
        index = self._by_key[line.host, line.pid, line.comm] = len(self.builders)
        self.builders.append(Builder(OpStream(origin=origin, comm=line.comm, nranks=line.nranks), tag))
        return index

    def add(self, indexes: Codes, codes: Codes, numbers: Ints, times: Floats | None) -> None:
        """Operations in the order of their lines; `numbers` are the lines', `times` NaN where a line has none."""
        self._window.append((indexes, codes, numbers, times))
        self._num_window += len(indexes)
        if self._num_window >= _WINDOW:
            self.flush()

    def wants(self, iteration: int) -> bool:
        """Whether a marker with this number would be kept now."""
        return iteration % self.mark_step == 0

    def mark(self, mark: Mark, num_before: int) -> None:
        """A marker, before which `num_before` operations of the chunk that is added next stand."""
        key = (mark.iteration, mark.tag)
        if key in self._marks or not self.wants(mark.iteration):
            return
        self._marks[key] = mark
        self._new_marks.append((self._num_window + num_before, mark))
        if len(self._marks) > 2 * self._limits.marks:
            self._thin_marks()

    def expect(self, iterations: Ints) -> None:
        """Markers with these numbers come: of too many only those that will be left are to be taken."""
        most = self._limits.marks
        new = iterations[iterations % self.mark_step == 0]
        if len(self._marks) + len(new) <= most:
            return
        before = np.fromiter((mark.iteration for mark in self._marks.values()), np.int64, len(self._marks))
        step = self.mark_step * thinned_step(np.unique(np.concatenate((before, new))) // self.mark_step, most)
        if step > self.mark_step:
            self._keep_multiples([mark for mark in self._marks.values() if mark.iteration % step == 0], step)

    def _thin_marks(self) -> None:
        self._keep_multiples(*thinned_marks(self._marks.values(), self._limits.marks))

    def _keep_multiples(self, marks: Collection[Mark], step: int) -> None:
        self.mark_step = step
        self._marks = {(mark.iteration, mark.tag): mark for mark in marks}
        self._new_marks = [(at, mark) for at, mark in self._new_marks if self.wants(mark.iteration)]
        for one in self.builders:
            one.stream.marks = {i: n for i, n in one.stream.marks.items() if self.wants(i)}

    def flush(self) -> None:
        """Hand the window out to the streams."""
        present: set[int] = set()
        if self._window:
            indexes = np.concatenate([part[0] for part in self._window])
            codes = np.concatenate([part[1] for part in self._window])
            numbers = np.concatenate([part[2] for part in self._window])
            times = None
            if any(part[3] is not None for part in self._window):
                times = np.concatenate(
                    [np.full(len(part[0]), np.nan) if part[3] is None else part[3] for part in self._window]
                )
            present = self._hand_out_all(indexes, codes, numbers, times)
        for index, one in enumerate(self.builders):
            if index not in present:
                self._set_marks(one, one.stream.num_operations, [0] * len(self._new_marks))
        self._window, self._num_window, self._new_marks = [], 0, []
        if self._num_pending > _MAX_PENDING:
            for one in self.builders:
                one.pack(all_of_it=True)
            self._num_pending = 0

    def _hand_out_all(self, indexes: Codes, codes: Codes, numbers: Ints, times: Floats | None) -> set[int]:
        """Give each stream its operations; which have any."""
        order: Ints | None = None
        borders = [0, len(indexes)]
        if int(indexes.min()) != int(indexes.max()):
            order = np.argsort(indexes, kind="stable")  # of 16 bits: sorted by their digits
            indexes, codes = indexes[order], codes[order]
            borders = [0, *(np.flatnonzero(indexes[1:] != indexes[:-1]) + 1).tolist(), len(order)]
        counts = _counts(codes, borders)
        new_marks = {(mark.iteration, mark.tag) for _, mark in self._new_marks}
        old_marks = [mark for key, mark in self._marks.items() if key not in new_marks]
        places = [place for place, _ in self._new_marks]
        streams = indexes[borders[:-1]].tolist()
        ends = np.array([borders[:-1], borders[1:]]) - [[0], [1]]
        firsts, lasts = numbers[ends if order is None else order[ends]].tolist()
        for i, (start, end) in enumerate(itertools.pairwise(borders)):
            one = self.builders[streams[i]]
            stream, base = one.stream, one.stream.num_operations
            if stream.first_line is None:
                stream.first_line = firsts[i]
                for mark in old_marks:  # those of the windows before stand before its first line
                    if applies(mark.tag, one.tag):
                        stream.marks.setdefault(mark.iteration, 0)
            stream.last_line = lasts[i]
            for code, num in enumerate(counts[i]):
                if num:
                    stream.counts[code] += num
            at = None if order is None else order[start:end]
            if times is not None:
                self._sample(one, base, times if at is None else times[at])
            if places:
                self._set_marks(one, base, places if at is None else np.searchsorted(at, places).tolist())
            self._take(one, codes[start:end].copy())
        return set(streams)

    def _take(self, one: Builder, codes: Codes) -> None:
        """More operations of a stream."""
        one.stream.num_operations += len(codes)
        one.pending.append(codes)
        one.num_pending += len(codes)
        self._num_pending += len(codes)
        if one.num_pending >= BLOCK:
            self._num_pending -= one.num_pending
            one.pack(all_of_it=False)
            self._num_pending += one.num_pending

    def _set_marks(self, one: Builder, base: int, befores: Sequence[int]) -> None:
        """`befores`: how many operations of the window stand before each new mark."""
        for (_, mark), before in zip(self._new_marks, befores, strict=True):
            if applies(mark.tag, one.tag):
                one.stream.marks.setdefault(mark.iteration, base + before)

    def _sample(self, one: Builder, base: int, times: Floats) -> None:
        """The first operation in every second, thinned evenly."""
        good = np.flatnonzero(~np.isnan(times))
        if not len(good):
            return
        seconds = np.floor(times[good]).astype(np.int64)
        new = np.flatnonzero(np.diff(seconds, prepend=seconds[0] - 1))
        samples = one.stream.times
        for i in new.tolist():
            second = int(seconds[i])
            if second != one.last_second and second % one.time_step == 0:
                samples.append((base + int(good[i]), float(times[good[i]])))
            one.last_second = second
            if len(samples) > 2 * self._limits.times:
                one.time_step = thin_times(samples, self._limits.times)

    def finish(self) -> list[Builder]:
        """All streams, complete, in the order of their first lines."""
        self.flush()
        if len(self._marks) > self._limits.marks:
            self._thin_marks()
        for one in self.builders:
            stream = one.stream
            one.pack(all_of_it=True)
            if len(stream.times) > self._limits.times:
                thin_times(stream.times, self._limits.times)
            for mark in self._marks.values():
                if applies(mark.tag, one.tag):  # it stands before the stream's first line
                    stream.marks.setdefault(mark.iteration, 0)
            stream.origin = replace(stream.origin, line=stream.first_line)
        return sorted(self.builders, key=lambda one: one.stream.first_line or 0)

    @property
    def marks(self) -> list[Mark]:
        """All that were kept, in the order of their lines."""
        return list(self._marks.values())


def applies(mark_tag: str | None, stream_tag: str | None) -> bool:
    """Whether a marker says something about a stream: not when both say whose they are and they differ."""
    return mark_tag is None or stream_tag is None or mark_tag == stream_tag


def thinned_marks(marks: Collection[Mark], most: int) -> tuple[list[Mark], int]:
    """At most about `most` marks, in the same order, and the power of two of which they are multiples."""
    iterations = {mark.iteration for mark in marks}
    step = thinned_step(sorted(iterations), max(1, most * len(iterations) // len(marks))) if len(marks) > most else 1
    return [mark for mark in marks if mark.iteration % step == 0], step


def thin_times(samples: list[tuple[int, float]], most: int) -> int:
    """Keep at most about `most` samples, in place; returns the step of whole seconds."""
    step = thinned_step([int(time_s // 1) for _, time_s in samples], most)
    samples[:] = [sample for sample in samples if int(sample[1] // 1) % step == 0]
    return step


def _counts(codes: Codes, borders: Sequence[int]) -> list[list[int]]:
    """How often each code comes between two borders."""
    num, width = len(borders) - 1, int(codes.max()) + 1
    if num == 1 or num * width > _MOST_CELLS:
        return [np.bincount(codes[start:end]).tolist() for start, end in itertools.pairwise(borders)]
    cells = np.repeat(np.arange(0, num * width, width), np.diff(borders)) + codes
    counts: list[list[int]] = np.bincount(cells, minlength=num * width).reshape(num, width).tolist()
    return counts
