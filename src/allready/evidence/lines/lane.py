"""The fast lane for the log of one process, as NCCL_DEBUG_FILE writes one for each rank.

Such a log is a few dozen lines of NCCL's and, between them, stretches of operations that come again (`loops`).  A chunk
that is nothing else is taken whole, without looking at it line by line.  Any other chunk goes the usual way, from
which the lane learns.  It gives exactly what the usual way gives: what it is not sure of it leaves alone.
"""

import threading
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from allready.evidence.lines import coll
from allready.evidence.lines.anchors import BLOCK_ANCHORS
from allready.evidence.lines.chunk import Lines
from allready.evidence.lines.coll import CollLine
from allready.evidence.lines.line_buffer import process_of
from allready.evidence.lines.literals import Ints
from allready.evidence.lines.loops import Filled, Match, Pattern, Shaped, is_plain, pattern_of, stretches
from allready.evidence.lines.marks import PADDING, WORDS, Marker
from allready.evidence.lines.model import Limits, RawLine
from allready.evidence.lines.templates import Rows

MAX_PATTERNS = 8
"""That are remembered, by everything that this thread reads."""

_MAX_RUNS = 64  # of operations, in one chunk
_MAX_SINGLE = 48  # lines that are looked at one by one
_MAX_TRIED = 4  # patterns, at one place
_MAX_OWN = 16
_MAX_LEARNT = 4  # runs of one chunk
_AHEAD = 24  # lines whose sizes tell where in a pattern a run begins
_FEWEST = 32  # operations of a run that is learnt from
_FEWEST_LINES = 8  # of a pattern that does not repeat itself
_MAX_ALIKE = 4  # single lines that others are compared with
_SELDOM = 64  # chunks from which in the end one is learnt in vain
_SPARE = 8  # chunks in a row that are tried in vain; after that every fourth
_NCCL = b"NCCL "
_VARIABLE = bytes(range(coll.VARIABLE_LOW, coll.VARIABLE_HIGH + 1))
_BLOCKS = tuple(anchor.encode() for anchor in BLOCK_ANCHORS)


class Own(Struct, eq=False):
    """A pattern as the process of this log writes it.  `lines`: one of each communicator, by slot."""

    filled: Filled
    lines: tuple[CollLine | None, ...]
    process: str

    def reshaped(self, shaped: Shaped, head: bytes) -> "Own | None":
        """The same with a counter of another width."""
        comms = [line.comm.encode() for line in self.lines if line is not None]
        if len(comms) < len(self.lines) or any(len(comm) != shaped.comm_size for comm in comms):
            return None
        return Own(shaped.filled(head, comms), self.lines, self.process)

    def is_of(self, text: bytes, slot: int) -> bool:
        """Whether an operation's line is of the communicator that has this slot."""
        line = self.lines[slot]
        return line is not None and b" comm " + line.comm.encode() + b" " in text


class Run(Struct, frozen=True):
    """Operations that follow each other: those of the pattern from `match.phase` on; or a single one."""

    of: Own | CollLine
    match: Match


class Plan(Struct):
    """What a chunk consists of, in order.

    `base`: how many lines stand before it; `offset`: the place of its first byte in the log.
    """

    base: int
    offset: int
    process: str = ""
    runs: list[tuple[int, Run]] = []  # number of the first line
    lines: list[RawLine] = []  # the others
    last: RawLine | None = None  # of the operations
    num_lines: int = 0
    num_blank: int = 0
    num_single: int = 0
    num_torn: int = 0  # lines that look like operations and are none

    @property
    def num_comms(self) -> int:
        """How many communicators it has at most."""
        return self.num_single + sum(
            len(of.lines) for of in {run.of for _, run in self.runs if isinstance(run.of, Own)}
        )

    def is_of(self, process: str) -> bool:
        """Whether all that it holds is from that process; whose the first line is, it belongs to."""
        self.process = self.process or process
        return self.process == process


class _Memory(threading.local):
    """The patterns that this thread knows, the one that was learnt last at the end."""

    def __init__(self) -> None:
        self.patterns: dict[bytes, Pattern] = {}
        self.num_vain = 0  # chunks in a row that were something else
        self.num_lessons = 0  # in a row that were of no use


_MEMORY = _Memory()


def forget() -> None:
    """As if no log had been read."""
    _MEMORY.patterns.clear()
    _MEMORY.num_vain = _MEMORY.num_lessons = 0


class Lane:
    """Takes chunks of one log."""

    def __init__(self, marker: Marker, limits: Limits) -> None:
        self._marker, self._limits = marker, limits
        # A user's marker may be in any line; and operations must not be too long to be looked at whole.
        self._is_open = not marker.is_own and coll.MAX_BYTES <= limits.line_bytes >= limits.clip_bytes
        self._own: dict[tuple[Pattern, bytes], Own] = {}
        self._head, self._comm_size = b"", 0  # of the operation before
        self._parsed: tuple[bytes, CollLine | None] = b"", None
        self._before: Pattern | None = None  # of the run before
        self._next = 0  # the line of it that would have come next
        self._singles: list[tuple[bytes, CollLine]] = []  # lines that no pattern had, the last ones

    @property
    def has_much_to_learn(self) -> bool:
        """Whether it knows nothing so far, so that a short chunk should come first."""
        return self._is_open and not _MEMORY.patterns and _is_worth(_MEMORY.num_vain)

    def plan(self, buffer: bytearray, rows: Rows, length: int, *, base: int = 0, offset: int = 0) -> Plan | None:
        """What the first `length` bytes are, whole lines; None where the usual way must be gone.

        `base`, `offset`: see `Plan`.
        """
        if not self._is_open or not _MEMORY.patterns or not _is_worth(_MEMORY.num_vain):
            _MEMORY.num_vain += self._is_open
            return None
        plan = Plan(base, offset)
        if not self._fill(plan, buffer, rows, length):
            _MEMORY.num_vain += 1
            return None
        _MEMORY.num_vain = _MEMORY.num_lessons = 0
        return plan

    def _fill(self, plan: Plan, buffer: bytearray, rows: Rows, length: int) -> bool:
        at = 0
        while at < length:
            place = buffer.find(coll.MARKER, at, length)
            begin = length if place < 0 else max(buffer.rfind(b"\n", at, place) + 1, at)
            if begin > at and not self._others(plan, buffer, at, begin):
                return False
            at = begin
            if at < length:
                end = buffer.find(b"\n", place) + 1
                text = bytes(memoryview(buffer)[at : end - 1])
                run = (
                    self._again(plan, text, end)
                    or self._run(plan, text, buffer, rows, at, length)
                    or self._single(plan, text, end)
                )
                if run is not None:
                    plan.runs.append((plan.base + plan.num_lines + 1, run))
                    plan.num_lines += run.match.num
                    at = run.match.end
                elif self._others(plan, buffer, at, end, is_torn=True):
                    at = end
                    plan.num_torn += 1
                else:
                    return False
                if len(plan.runs) - plan.num_single > _MAX_RUNS or plan.num_single + plan.num_torn > _MAX_SINGLE:
                    return False
        if plan.runs:
            number, run = plan.runs[-1]
            end = run.match.end - 1
            place = buffer.rfind(b"\n", 0, end) + 1
            text = bytes(memoryview(buffer)[place : min(end, place + self._limits.clip_bytes)])
            plan.last = RawLine(number=number + run.match.num - 1, offset=plan.offset + place, text=text)
        return True

    # -- lines that are no operations ------------------------------------------------------------------------------

    def _others(self, plan: Plan, buffer: bytearray, start: int, stop: int, *, is_torn: bool = False) -> bool:
        """Add such lines; False where one of them needs a closer look.  `is_torn`: it looks like an operation."""
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
                    head = text[: text.find(_NCCL) + len(_NCCL)]
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
        """Whether a line says an iteration."""
        small = data.lower()
        if not any(word in small for word in WORDS):
            return False
        sizes = np.array([len(text) + 1 for text in texts], np.int64)
        return len(self._marker.find(data + b"\n" * PADDING, len(data), np.cumsum(sizes) - sizes).lines) > 0

    # -- operations ------------------------------------------------------------------------------------------------

    def _run(self, plan: Plan, text: bytes, buffer: bytearray, rows: Rows, start: int, stop: int) -> Run | None:
        """The operations from `start` on that some pattern has, the first of which is `text`; None where none has."""
        best: tuple[Match, Own] | None = None
        for shaped, phase in self._candidates(text, buffer, start, stop):
            own = self._own.get((shaped.pattern, self._head))
            if own is None or not own.is_of(text, shaped.pattern.slots[phase]):
                own = self._filled(shaped, phase, text, buffer, start)
            elif own.filled.shaped is not shaped:
                own = own.reshaped(shaped, self._head)
            if own is None:
                continue
            match = own.filled.match(rows.bytes, start, stop, phase)
            if match.num and (best is None or match.num > best[0].num):
                best = match, own
                if match.num >= len(shaped.pattern):
                    break
        if best is None or not plan.is_of(best[1].process):
            return None
        match, own = best
        pattern = own.filled.shaped.pattern
        if None not in own.lines and self._own.get((pattern, self._head)) is not own:
            if len(self._own) >= _MAX_OWN:
                self._own.clear()
            self._own[pattern, self._head] = own
        self._before, self._next = pattern, (match.phase + match.num) % len(pattern)
        return Run(own, match)

    def _again(self, plan: Plan, text: bytes, end: int) -> Run | None:
        """An operation that no pattern had when it came before."""
        for old, line in self._singles:
            if _is_alike(old, line, text) and plan.is_of(f"{line.host}:{line.pid}"):
                plan.num_single += 1
                return Run(line, Match(0, 1, end))
        return None

    def _single(self, plan: Plan, text: bytes, end: int) -> Run | None:
        """An operation that no pattern has."""
        line = self._parse(text)
        if line is None or not plan.is_of(f"{line.host}:{line.pid}"):
            return None
        self._singles = [(text, line), *self._singles[: _MAX_ALIKE - 1]]
        plan.num_single += 1
        return Run(line, Match(0, 1, end))

    def _candidates(self, text: bytes, buffer: bytearray, start: int, stop: int) -> Iterator[tuple[Shaped, int]]:
        """Which patterns the lines from `start` on may be, the first of which is `text`, and from which line on."""
        if not self._head or not text.startswith(self._head):
            line = self._parse(text)
            if line is None:
                return
            self._head, self._comm_size = text[: line.head], line.comm_at[1] - line.comm_at[0]
        number = text.find(coll.MARKER) + len(coll.MARKER)
        num_digits = text.find(b" ", number) - number
        if not 1 <= num_digits <= coll.MAX_DIGITS:
            return
        sizes = len(self._head), self._comm_size, num_digits
        if self._before is not None:  # it goes on with a wider counter, or begins again
            shaped = self._before.shaped(*sizes)
            for phase in {self._next: None, 0: None}:
                if shaped.sizes[phase] == len(text) + 1 and shaped.pattern.is_like(phase, text):
                    yield shaped, phase
        known = [pattern.shaped(*sizes) for pattern in _MEMORY.patterns.values()]
        for shaped in known:
            if shaped.sizes[0] == len(text) + 1 and shaped.pattern.is_like(0, text):
                yield shaped, 0  # what is not read from its middle on begins with its beginning
        found = [
            (shaped, phase)
            for shaped in known
            for phase in shaped.phases.get(len(text) + 1, ())
            if phase and shaped.pattern.is_like(phase, text)
        ]
        if len(found) > 1:
            ahead = _sizes(buffer, start, stop)
            found.sort(key=lambda one: -_num_alike(one[0].sizes[one[1] :], ahead))
        yield from found[:_MAX_TRIED]

    def _filled(self, shaped: Shaped, phase: int, text: bytes, buffer: bytearray, start: int) -> Own | None:
        """The pattern with what the lines from `start` on have where it is open."""
        pattern = shaped.pattern
        line = self._parse(text)
        if line is None or text[: line.head] != self._head:
            return None
        lines: list[CollLine | None] = [None] * pattern.num_slots
        comms = [b"\0" * shaped.comm_size] * pattern.num_slots
        for place in range(len(pattern)):
            index = (phase + place) % len(pattern)
            size, slot = shaped.sizes[index], pattern.slots[index]
            if lines[slot] is None:
                other = bytes(memoryview(buffer)[start : start + size - 1])
                one = self._parse(other)  # where the lines are others, this is any piece of some
                is_own = one is not None and other[: one.head] == self._head
                if one is not None and is_own and one.comm_at[1] - one.comm_at[0] == shaped.comm_size:
                    lines[slot], comms[slot] = one, one.comm.encode()
                    if None not in lines:
                        break
            start += size
        return Own(shaped.filled(self._head, comms), tuple(lines), f"{line.host}:{line.pid}")

    def _parse(self, text: bytes) -> CollLine | None:
        """The operation of a line as NCCL writes it, nothing in front; the last one is remembered."""
        if self._parsed[0] != text:
            line = coll.parse(text)
            self._parsed = text, line if line is not None and is_plain(text, line) else None
        return self._parsed[1]

    # -- learning --------------------------------------------------------------------------------------------------

    def learn(self, lines: Lines) -> None:
        """From lines that went the usual way, and were settled."""
        if not self._is_open:
            return
        operations = np.flatnonzero((lines.targets >= 0) & (lines.ids >= 0) & (lines.numbers < 0))
        if len(operations) < _FEWEST or 2 * len(operations) < len(lines) or not np.isnan(lines.times[operations[0]]):
            return
        _MEMORY.num_lessons += 1
        num = _MEMORY.num_lessons
        if num & (num - 1) and num % _SELDOM:  # not the 1st, 2nd, 4th, ..., 64th, 128th, 192nd, ... in vain
            return
        runs = np.split(operations, np.flatnonzero(np.diff(operations) != 1) + 1)
        for run in sorted(runs, key=len, reverse=True)[:_MAX_LEARNT]:
            if len(run) >= _FEWEST and self._is_of_one(lines, run):
                self._learn(lines, run)

    def _is_of_one(self, lines: Lines, run: Ints) -> bool:
        """Whether the first operations of a run begin alike, as those of one process do."""
        text = lines.text(int(run[0]))
        line = self._parse(text)
        return line is not None and all(
            lines.text(index, line.head) == text[: line.head] for index in run[:_AHEAD].tolist()
        )

    def _learn(self, lines: Lines, run: Ints) -> None:
        found = stretches(lines.ids[run])
        for stretch in found if any(one.is_loop for one in found) else ():
            if stretch.lines < _FEWEST_LINES and not stretch.is_loop:
                continue
            some = run[stretch.first : stretch.first + stretch.lines].tolist()
            texts = [lines.text(index) for index in some]
            parsed = [line for line in map(coll.parse, texts) if line is not None]
            pattern = pattern_of([text + b"\n" for text in texts], parsed) if len(parsed) == len(texts) else None
            if pattern is None:
                return
            known = _MEMORY.patterns
            if any(pattern.key in other.key * 2 for other in known.values() if len(other) >= len(pattern)):
                continue  # only another line of it comes first, or it is a part
            if len(known) >= MAX_PATTERNS:
                del known[next(iter(known))]
            known[pattern.key] = pattern
            _MEMORY.num_vain = 0
            self._singles = []


def _is_worth(num_vain: int) -> bool:
    """Whether another chunk is tried after so many in vain."""
    return num_vain < _SPARE or num_vain % 4 == 0


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
    while start < stop and len(sizes) < _AHEAD:
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
