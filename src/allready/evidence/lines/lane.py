"""The fast lane for the log of one process, as NCCL_DEBUG_FILE writes one for each rank.

Such a log is a few dozen lines of NCCL's and, between them, runs of operations that are repeated (`loops`).  A chunk
that is nothing else is planned as a whole, not line by line; any other chunk goes the usual way, and the lane learns
loops from it.  The result is that of the usual way: what the lane is not sure of it leaves alone.
docs/diagnose-scanner.md draws its states.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from allready.evidence.lines import coll
from allready.evidence.lines.anchors import BLOCK_ANCHORS
from allready.evidence.lines.chunk import Lines
from allready.evidence.lines.coll import CollLine
from allready.evidence.lines.forms import NCCL_WORD
from allready.evidence.lines.line_buffer import process_of
from allready.evidence.lines.loops import BoundLoop, LineLoop, LoopMatch, SizedLoop, is_plain, loop_of, segments_of
from allready.evidence.lines.marks import PADDING, WORDS, Marker
from allready.evidence.lines.model import LineLimits, RawLine
from allready.evidence.lines.native import Ints
from allready.evidence.lines.templates import Rows

MAX_LOOPS = 8  # that a `LoopMemory` keeps
_MAX_RUNS = 64  # of operations, in one chunk
_MAX_SINGLE = 48  # operations outside of loops, in one chunk
_MAX_TRIED = 4  # loops, at one place
_MAX_BOUND = 16
_MAX_LEARNT = 4  # runs of one chunk
_NUM_AHEAD = 24  # lines whose sizes tell at which line of a loop a run begins
_MIN_OPERATIONS = 32  # of a run that is learnt from
_MIN_LINES = 8  # of a segment that is no loop
_MAX_ALIKE = 4  # single operations that others are compared with
_LESSON_STEP = 64  # after many lessons in vain only one chunk of so many is learnt from
_MAX_FAILED = 8  # chunks in a row that were planned in vain; after that every fourth is tried
_VARIABLE = bytes(range(coll.VARIABLE_LOW, coll.VARIABLE_HIGH + 1))
_BLOCKS = tuple(anchor.encode() for anchor in BLOCK_ANCHORS)


class LoopMemory:
    """The loops that were learnt from all logs of a reader, the latest at the end."""

    def __init__(self) -> None:
        self.loops: dict[bytes, LineLoop] = {}
        self.num_failed = 0  # chunks in a row that could not be planned
        self.num_lessons = 0  # in a row that were of no use

    @property
    def is_worth_trying(self) -> bool:
        """Whether another chunk is planned after so many in vain."""
        return self.num_failed < _MAX_FAILED or self.num_failed % 4 == 0

    def begin_lesson(self) -> bool:
        """Count a chunk that could be learnt from; True for the 1st, 2nd, 4th, ..., 64th, 128th, 192nd, ... in vain."""
        self.num_lessons += 1
        return not self.num_lessons & (self.num_lessons - 1) or not self.num_lessons % _LESSON_STEP

    def add(self, loop: LineLoop) -> bool:
        """Remember a loop; False where it is known, or is a part of a known one that begins at another line."""
        if any(loop.key in other.key * 2 for other in self.loops.values() if len(other) >= len(loop)):
            return False
        if len(self.loops) >= MAX_LOOPS:
            del self.loops[next(iter(self.loops))]
        self.loops[loop.key] = loop
        self.num_failed = 0
        return True


class OperationRun(Struct, frozen=True):
    """Operations that follow each other: those of a loop from `match.phase` on; or a single one."""

    of: BoundLoop | CollLine
    match: LoopMatch


class ChunkPlan(Struct):
    """What a chunk consists of, in order.

    `base`: how many lines stand before it; `offset`: the place of its first byte in the log.
    """

    base: int
    offset: int
    process: str = ""
    runs: list[tuple[int, OperationRun]] = []  # number of the first line
    lines: list[RawLine] = []  # the others
    last: RawLine | None = None  # of the operations
    num_lines: int = 0
    num_blank: int = 0
    num_single: int = 0
    num_torn: int = 0  # lines that look like operations and are none

    @property
    def num_comms(self) -> int:
        """How many communicators it has at most."""
        bound = {run.of for _, run in self.runs if isinstance(run.of, BoundLoop)}
        return self.num_single + sum(len(of.lines) for of in bound)

    @property
    def has_too_much(self) -> bool:
        """Whether it consists of so many pieces that the usual way is quicker."""
        num_loops = len(self.runs) - self.num_single
        return num_loops > _MAX_RUNS or self.num_single + self.num_torn > _MAX_SINGLE

    def is_of(self, process: str) -> bool:
        """Whether all that it holds is from that process; the first line decides which one."""
        self.process = self.process or process
        return self.process == process

    def add(self, run: OperationRun, *, is_single: bool) -> None:
        """Operations that come next."""
        self.runs.append((self.base + self.num_lines + 1, run))
        self.num_lines += run.match.num
        self.num_single += is_single


class Lane:
    """Plans the chunks of one log."""

    def __init__(self, marker: Marker, limits: LineLimits, memory: LoopMemory, *, is_on: bool = True) -> None:
        self._marker, self._limits, self._memory = marker, limits, memory
        # A user's marker may be in any line; and operations must not be too long to be examined whole.
        self._is_open = is_on and not marker.is_own and coll.MAX_BYTES <= limits.line_bytes >= limits.clip_bytes
        self._bound: dict[tuple[LineLoop, bytes], BoundLoop] = {}
        self._head, self._comm_size = b"", 0  # of the operation before
        self._parsed: tuple[bytes, CollLine | None] = b"", None
        self._before: LineLoop | None = None  # of the run before
        self._next = 0  # the line of it that would have come next
        self._singles: list[tuple[bytes, CollLine]] = []  # operations outside of loops, the last ones

    @property
    def needs_first_lesson(self) -> bool:
        """Whether no loop is known so far, so that a short chunk should come first."""
        return self._is_open and not self._memory.loops and self._memory.is_worth_trying

    def plan(self, buffer: bytearray, rows: Rows, length: int, *, base: int = 0, offset: int = 0) -> ChunkPlan | None:
        """What the first `length` bytes are, whole lines; None where the usual way must be gone.

        `base`, `offset`: see `ChunkPlan`.
        """
        memory = self._memory
        if not self._is_open or not memory.loops or not memory.is_worth_trying:
            memory.num_failed += self._is_open
            return None
        plan = ChunkPlan(base, offset)
        if not self._fill(plan, buffer, rows, length):
            memory.num_failed += 1
            return None
        memory.num_failed = memory.num_lessons = 0
        return plan

    def _fill(self, plan: ChunkPlan, buffer: bytearray, rows: Rows, length: int) -> bool:
        """Go through a chunk from one run of operations to the next; False where something else is in it."""
        at = 0
        while at < length:
            marker = buffer.find(coll.MARKER, at, length)
            begin = length if marker < 0 else max(buffer.rfind(b"\n", at, marker) + 1, at)
            if begin > at and not self._add_others(plan, buffer, at, begin):
                return False
            if begin == length:
                break
            end = buffer.find(b"\n", marker) + 1
            text = bytes(memoryview(buffer)[begin : end - 1])
            at = self._add_operations(plan, text, buffer, rows, begin, length) or self._add_single(plan, text, end)
            if not at:
                if not self._add_others(plan, buffer, begin, end, is_torn=True):
                    return False
                plan.num_torn += 1
                at = end
            if plan.has_too_much:
                return False
        if plan.runs:
            number, run = plan.runs[-1]
            end = run.match.end - 1
            place = buffer.rfind(b"\n", 0, end) + 1
            text = bytes(memoryview(buffer)[place : min(end, place + self._limits.clip_bytes)])
            plan.last = RawLine(number=number + run.match.num - 1, offset=plan.offset + place, text=text)
        return True

    # -- lines that are no operations ------------------------------------------------------------------------------

    def _add_others(self, plan: ChunkPlan, buffer: bytearray, start: int, stop: int, *, is_torn: bool = False) -> bool:
        """Add such lines; False where one of them must be read line by line.  `is_torn`: it looks like an operation."""
        data = bytes(memoryview(buffer)[start:stop])
        if is_torn and coll.parse(data[:-1]) is not None:
            return False
        if b"\r" in data or any(anchor in data for anchor in _BLOCKS):
            return False
        texts = data.split(b"\n")[:-1]
        if self._has_mark(data, texts):
            return False
        head, offset, most = b"\n", plan.offset + start, self._limits.clip_bytes  # no line begins with a newline
        for number, text in enumerate(texts, start=plan.base + plan.num_lines + 1):
            if text:
                if not text.startswith(head):
                    head = text[: text.find(NCCL_WORD) + len(NCCL_WORD)]
                    found = process_of(head)
                    if found is None or not plan.is_of(found[0]):
                        return False
                if len(text) > most:
                    return False
                plan.lines.append(RawLine(number=number, offset=offset, text=text))
            offset += len(text) + 1
        plan.num_lines += len(texts)
        plan.num_blank += texts.count(b"")
        return len(plan.lines) <= self._limits.same_lines

    def _has_mark(self, data: bytes, texts: Sequence[bytes]) -> bool:
        """Whether a line names an iteration."""
        small = data.lower()
        if not any(word in small for word in WORDS):
            return False
        sizes = np.array([len(text) + 1 for text in texts], np.int64)
        return len(self._marker.find(data + b"\n" * PADDING, len(data), np.cumsum(sizes) - sizes).lines) > 0

    # -- operations ------------------------------------------------------------------------------------------------

    def _add_operations(
        self, plan: ChunkPlan, text: bytes, buffer: bytearray, rows: Rows, start: int, stop: int
    ) -> int:
        """The operations from `start` on that some loop has, the first of which is `text`; the byte behind, or 0."""
        if any(_is_alike(old, line, text) for old, line in self._singles):
            return 0  # no loop had it when it came before
        best: tuple[LoopMatch, BoundLoop] | None = None
        for sized, phase in self._candidates(text, buffer, start, stop):
            bound = self._bind(sized, phase, text, buffer, start)
            if bound is None:
                continue
            match = bound.match(rows.bytes, start, stop, phase)
            if match.num and (best is None or match.num > best[0].num):
                best = match, bound
                if match.num >= len(sized.loop):
                    break
        if best is None or not plan.is_of(best[1].process):
            return 0
        match, bound = best
        key = bound.loop, self._head
        if None not in bound.lines and self._bound.get(key) is not bound:
            if len(self._bound) >= _MAX_BOUND:
                self._bound.clear()
            self._bound[key] = bound
        self._before, self._next = bound.loop, (match.phase + match.num) % len(bound.loop)
        plan.add(OperationRun(bound, match), is_single=False)
        return match.end

    def _add_single(self, plan: ChunkPlan, text: bytes, end: int) -> int:
        """An operation that no loop has; the byte behind, or 0 where it is none."""
        line = next((line for old, line in self._singles if _is_alike(old, line, text)), None)
        if line is None:
            line = self._parse(text)
            if line is None:
                return 0
            self._singles = [(text, line), *self._singles[: _MAX_ALIKE - 1]]
        if not plan.is_of(f"{line.host}:{line.pid}"):
            return 0
        plan.add(OperationRun(line, LoopMatch(0, 1, end)), is_single=True)
        return end

    def _candidates(self, text: bytes, buffer: bytearray, start: int, stop: int) -> Iterator[tuple[SizedLoop, int]]:
        """Which loops the lines from `start` on may be, the first of which is `text`, and from which line on."""
        if not self._head or not text.startswith(self._head):
            line = self._parse(text)
            if line is None:
                return
            self._head, self._comm_size = text[: line.head], line.comm_at[1] - line.comm_at[0]
        counter = text.find(coll.MARKER) + len(coll.MARKER)
        num_digits = text.find(b" ", counter) - counter
        if not 1 <= num_digits <= coll.MAX_DIGITS:
            return
        lengths = len(self._head), self._comm_size, num_digits
        size = len(text) + 1
        if self._before is not None:  # it goes on with a wider counter, or begins again
            sized = self._before.sized(*lengths)
            for phase in {self._next: None, 0: None}:
                if sized.sizes[phase] == size and sized.loop.has_words_of(phase, text):
                    yield sized, phase
        known = [loop.sized(*lengths) for loop in self._memory.loops.values()]
        for sized in known:
            if sized.sizes[0] == size and sized.loop.has_words_of(0, text):
                yield sized, 0  # a loop that is not read from its middle on begins with its first line
        found = [
            (sized, phase)
            for sized in known
            for phase in sized.phases.get(size, ())
            if phase and sized.loop.has_words_of(phase, text)
        ]
        if len(found) > 1:
            ahead = _sizes(buffer, start, stop)
            found.sort(key=lambda one: -_num_alike(one[0].sizes[one[1] :], ahead))
        yield from found[:_MAX_TRIED]

    def _bind(self, sized: SizedLoop, phase: int, text: bytes, buffer: bytearray, start: int) -> BoundLoop | None:
        """The loop as this process writes it: as before, with another width, or by what the next lines have."""
        known = self._bound.get((sized.loop, self._head))
        if known is None or not known.has_comm_of(text, sized.loop.comms[phase]):
            return self._bind_to_lines(sized, phase, text, buffer, start)
        return known if known.sized is sized else known.resized(sized, self._head)

    def _bind_to_lines(
        self, sized: SizedLoop, phase: int, text: bytes, buffer: bytearray, start: int
    ) -> BoundLoop | None:
        """The loop with what the lines from `start` on have where it is open."""
        loop, line = sized.loop, self._parse(text)
        if line is None or text[: line.head] != self._head:
            return None
        lines: list[CollLine | None] = [None] * loop.num_comms
        comms = [b"\0" * sized.comm_size] * loop.num_comms
        for place in range(len(loop)):
            index = (phase + place) % len(loop)
            size, comm = sized.sizes[index], loop.comms[index]
            if lines[comm] is None:
                other = bytes(memoryview(buffer)[start : start + size - 1])
                one = self._parse(other)  # where the lines are others, this is any piece of some
                is_own = one is not None and other[: one.head] == self._head
                if one is not None and is_own and one.comm_at[1] - one.comm_at[0] == sized.comm_size:
                    lines[comm], comms[comm] = one, one.comm.encode()
                    if None not in lines:
                        break
            start += size
        return BoundLoop(sized, sized.expected(self._head, comms), tuple(lines), f"{line.host}:{line.pid}")

    def _parse(self, text: bytes) -> CollLine | None:
        """The operation of a line as NCCL writes it, nothing in front; the last one is remembered."""
        if self._parsed[0] != text:
            line = coll.parse(text)
            self._parsed = text, line if line is not None and is_plain(text, line) else None
        return self._parsed[1]

    # -- learning --------------------------------------------------------------------------------------------------

    def learn(self, lines: Lines) -> None:
        """Learn loops from lines that went the usual way, and have their streams and codes."""
        if not self._is_open:
            return
        operations = np.flatnonzero((lines.targets >= 0) & (lines.ids >= 0) & (lines.numbers < 0))
        if len(operations) < _MIN_OPERATIONS or 2 * len(operations) < len(lines):
            return
        if not np.isnan(lines.times[operations[0]]) or not self._memory.begin_lesson():
            return
        begins = np.concatenate(([0], np.flatnonzero(np.diff(operations) != 1) + 1))
        nums = np.diff(begins, append=len(operations))
        for longest in np.argsort(-nums, kind="stable")[:_MAX_LEARNT].tolist():
            run = operations[begins[longest] :][: nums[longest]]
            if len(run) >= _MIN_OPERATIONS and self._is_of_one(lines, run):
                self._learn_run(lines, run)

    def _is_of_one(self, lines: Lines, run: Ints) -> bool:
        """Whether the first operations of a run begin alike, as those of one process do."""
        text = lines.text(int(run[0]))
        line = self._parse(text)
        return line is not None and all(
            lines.text(index, line.head) == text[: line.head] for index in run[:_NUM_AHEAD].tolist()
        )

    def _learn_run(self, lines: Lines, run: Ints) -> None:
        segments = segments_of(lines.ids[run])
        for segment in segments if any(one.is_loop for one in segments) else ():
            if segment.num < _MIN_LINES and not segment.is_loop:
                continue
            some = run[segment.first : segment.first + segment.num].tolist()
            texts = [lines.text(index) for index in some]
            parsed = [line for line in map(coll.parse, texts) if line is not None]
            loop = loop_of([text + b"\n" for text in texts], parsed) if len(parsed) == len(texts) else None
            if loop is None:
                return
            if self._memory.add(loop):
                self._singles = []


def _is_alike(old: bytes, line: CollLine, text: bytes) -> bool:
    """Whether a text is the same operation as an old one, of which `line` was parsed."""
    if len(old) != len(text):
        return False
    at = 0
    for start, end in line.variable:
        if old[at:start] != text[at:start] or text[start:end].strip(_VARIABLE):
            return False
        at = end
    return old[at:] == text[at:]


def _sizes(buffer: bytearray, start: int, stop: int) -> list[int]:
    """Of the next lines."""
    sizes: list[int] = []
    while start < stop and len(sizes) < _NUM_AHEAD:
        end = buffer.find(b"\n", start) + 1
        sizes.append(end - start)
        start = end
    return sizes


def _num_alike(one: Sequence[int], two: Sequence[int]) -> int:
    """How many numbers are the same, from the first on."""
    for num, (a, b) in enumerate(zip(one, two, strict=False)):
        if a != b:
            return num
    return min(len(one), len(two))
