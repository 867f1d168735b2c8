"""Puts the parts of one file together: the result is what one pass over the whole file gives."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from allready.evidence.lines.line_buffer import LineBuffer, process_of
from allready.evidence.lines.model import LIMITS, RESTART, IterationMarks, LineLimits, Mark, RawLine, Scanned
from allready.evidence.lines.streams import applies, packed, shape_code, thin_times, thinned_marks, unpacked
from allready.evidence.reading import OpShape, OpStream

Key = tuple[str | None, int | None, str]
_SUMS = [name for name in Scanned.__struct_fields__ if name.startswith("num_") and name != "num_head"]


def merged(parts: Sequence[Scanned], limits: LineLimits = LIMITS) -> Scanned:
    """The whole from neighbouring parts of one file, in order: as if it had been scanned at once.

    Nothing in the parts is changed.
    """
    whole = Scanned()
    keeper = LineBuffer(limits)
    streams = _Streams(limits)
    for part in parts:
        base = whole.num_lines
        streams.add(part, base)
        _add_lines(keeper, part, base)
        for process, line in part.last_lines.items():
            if process in whole.last_lines or len(whole.last_lines) < limits.processes:
                whole.last_lines[process] = _moved(line, base)
        whole.head = (whole.head + part.head)[: limits.edge_bytes]
        whole.tail = (whole.tail + part.tail)[-limits.edge_bytes :]
        whole.iterations = _both(whole.iterations, part.iterations, base)
        whole.rest_examples += part.rest_examples[: limits.rest_examples - len(whole.rest_examples)]
        whole.problems += [problem for problem in part.problems if problem not in whole.problems]
        for name in _SUMS:
            setattr(whole, name, getattr(whole, name) + getattr(part, name))
    keeper.close()
    whole.lines, whole.num_head, whole.repeats = keeper.lines, keeper.num_head, keeper.repeats_in_order()
    whole.num_dropped += keeper.num_dropped
    streams.finish(whole)
    return whole


def _moved(line: RawLine, base: int) -> RawLine:
    return replace(line, number=line.number + base)


def _add_lines(keeper: LineBuffer, part: Scanned, base: int) -> None:
    for index, line in enumerate(part.lines):
        if part.num_dropped and index == part.num_head:
            keeper.close_head()
        found = process_of(line.text)
        keeper.add(_moved(line, base), "" if found is None else found[0])
    for repeat in part.repeats:
        keeper.add_repeat(replace(repeat, first=repeat.first + base, last=repeat.last + base))


def _begins_again(one: IterationMarks, two: IterationMarks) -> bool:
    first, last, after = one.first or 0, one.last or 0, two.first or 0
    return after <= first and last > after + RESTART


def _both(one: IterationMarks, two: IterationMarks, base: int) -> IterationMarks:
    highest = [value for value in (one.highest, two.highest) if value is not None]
    restart = two.restart_line
    if restart is None and None not in (one.first, one.last, two.first) and _begins_again(one, two):
        restart = two.first_line
    first_line = two.first_line if two.first_line is None else two.first_line + base
    return IterationMarks(
        first_line=first_line if one.first_line is None else one.first_line,
        restart_line=one.restart_line if restart is None else restart + base,
        num_lines=one.num_lines + two.num_lines,
        first=two.first if one.first is None else one.first,
        last=one.last if two.last is None else two.last,
        last_line=one.last_line if two.last_line is None else two.last_line + base,
        highest=max(highest, default=None),
    )


class _One(Struct):
    """A stream that grows."""

    stream: OpStream
    tag: str | None
    known: dict[OpShape, int] = {}

    def add(self, part: OpStream, base: int) -> None:
        stream = self.stream
        codes = []
        for shape, count in zip(part.shapes, part.counts, strict=True):
            code = shape_code(stream.shapes, self.known, stream.counts, shape)
            stream.counts[code] += count
            codes.append(code)
        if codes == list(range(len(codes))):
            stream.blocks += part.blocks
        else:
            table = np.array(codes, np.uint16)
            stream.blocks += [packed(table[unpacked(block)]) for block in part.blocks]
        times = [(stream.num_operations + before, time_s) for before, time_s in part.times]
        if times and stream.times and times[0][1] // 1 == stream.times[-1][1] // 1:
            times = times[1:]  # the second that began in the part before
        stream.times += times
        if part.first_line is not None and part.last_line is not None:
            stream.first_line = part.first_line + base if stream.first_line is None else stream.first_line
            stream.last_line = part.last_line + base
        stream.num_operations += part.num_operations


class _Streams:
    def __init__(self, limits: LineLimits) -> None:
        self._limits = limits
        self._all: dict[Key, _One] = {}
        self._marks: dict[tuple[int, str | None], Mark] = {}

    def add(self, part: Scanned, base: int) -> None:
        own: dict[Key, OpStream] = {}
        for stream, tag in zip(part.streams, part.stream_tags, strict=True):
            key = (stream.origin.host, stream.origin.pid, stream.comm)
            if key not in self._all:
                origin = replace(stream.origin, line=(stream.first_line or 0) + base)
                one = self._all[key] = _One(OpStream(origin=origin, comm=stream.comm, nranks=stream.nranks), tag)
                # The parts before have none of it, so all their markers stand before its first line.
                one.stream.marks.update((m.iteration, 0) for m in self._marks.values() if applies(m.tag, tag))
            own[key] = stream
        for mark in part.marks:
            if (mark.iteration, mark.tag) in self._marks:
                continue
            self._marks[mark.iteration, mark.tag] = replace(mark, number=mark.number + base)
            for key, one in self._all.items():
                if applies(mark.tag, one.tag):
                    before = own[key].marks.get(mark.iteration, 0) if key in own else 0
                    one.stream.marks.setdefault(mark.iteration, one.stream.num_operations + before)
        for key, stream in own.items():
            self._all[key].add(stream, base)

    def finish(self, whole: Scanned) -> None:
        marks, step = thinned_marks(self._marks.values(), self._limits.marks)
        ones = sorted(self._all.values(), key=lambda one: one.stream.first_line or 0)
        for one in ones:
            stream = one.stream
            for mark in marks:
                if applies(mark.tag, one.tag):
                    stream.marks.setdefault(mark.iteration, 0)
            stream.marks = {i: n for i, n in stream.marks.items() if i % step == 0}
            if len(stream.times) > self._limits.times:
                thin_times(stream.times, self._limits.times)
        whole.marks = marks
        whole.streams = [one.stream for one in ones]
        whole.stream_tags = [one.tag for one in ones]
