"""What is kept of the interesting lines, within bounds: the first, the last, and counts of what repeats itself."""

import functools
from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from allready.evidence.lines.coll import HOST_BYTES
from allready.evidence.lines.line_counts import LineCounts
from allready.evidence.lines.model import LineLimits, RawLine, Repeat
from allready.evidence.lines.native import Ints
from allready.evidence.lines.templates import DIGIT, HEX
from allready.patterns import compiled_bytes

_BYTES_BEFORE = 512
_MAX_KEYS = 50_000
_MAX_UNINFORMATIVE = 10_000
LINE_BYTES = 100  # what a line takes besides its text
_MAX_HEAD_BYTES = 320
DIGITS = b"0123456789"
_NUMBER = rb"0x[0-9a-f]+|[0-9]+"
HEX_NUMBER = rb"0x(?<![0-9]0x)[0-9a-f]+"
"""What is deleted before the digits: with them it is what `_NUMBER` finds one by one."""

_PIDS = rb"(?s).*:(\d{1,10}):\d{1,10} "  # the last one: a time of day looks the same

Span = tuple[int, int]
_SAYS_NOTHING = (
    rb"NCCL INFO (?:Trees? |Ring |Pattern |=+|\+ |threadThresholds|Setting affinity|NVLS |P2P Chunksize|Check P2P|"
    rb"isAll|New proxy|Latency/AlgBw|Max NThreads|CC O|Intra|\[Proxy |Symmetric|Dynamic)"
)


@functools.lru_cache(maxsize=4096)  # each process has the same forms
def _says_nothing(form: bytes) -> bool:
    """Whether a line of NCCL's, with or without its numbers, is one of which a few are enough.

    Each process prints them for each channel or communicator, and no reader takes anything from them but that the
    process was there.
    """
    return compiled_bytes(_SAYS_NOTHING).search(form) is not None


def process_of(text: bytes) -> tuple[str, Span] | None:
    """The "host:pid" that stands before the word NCCL, and where."""
    word = text.find(b"NCCL ")
    if word <= 0:
        return None
    head = text[:word]
    return _process_in(head) if word <= _MAX_HEAD_BYTES else _process_in.__wrapped__(head)


@functools.lru_cache(maxsize=4096)
def _process_in(head: bytes) -> tuple[str, Span] | None:
    """The same, of what stands before the word."""
    match = compiled_bytes(_PIDS).search(head)
    if match is None:
        return None
    front = head[: match.start(1) - 1]
    start = len(front.rstrip(HOST_BYTES))
    if start == len(front) or len(front) - start > 255:
        return None
    return head[start : match.end(1)].decode("ascii"), (start, match.end(1))


def without_numbers(text: bytes) -> bytes:
    """Equal for lines that differ in numbers only."""
    return compiled_bytes(_NUMBER).sub(b"", text) if b"0x" in text else text.translate(None, DIGITS)


def numbers_in(text: bytes, but: Span | None) -> list[tuple[int, int, int]]:
    """(start, end, class) of the numbers that `without_numbers` takes out, except inside `but`."""
    spans = []
    for match in compiled_bytes(_NUMBER).finditer(text):
        start, end = match.span()
        kind = DIGIT
        if text.startswith(b"0x", start) and end - start > 2:
            start, kind = start + 2, HEX
        if but is None or end <= but[0] or start >= but[1]:
            spans.append((start, end, kind))
    return spans


def clip(line: bytes, place: int, length: int, most: int) -> bytes:
    """The part of a line with the literal of that `length` at `place`: between carriage returns, and not too long."""
    line = line.rstrip(b"\r\n")
    if b"\r" in line:
        begin = line.rfind(b"\r", 0, place) + 1
        end = line.find(b"\r", place)
        line, place = line[begin : None if end < 0 else end], place - begin
    if len(line) > most:
        begin = 0 if place + length <= most else max(0, place - min(_BYTES_BEFORE, most // 4))
        line = line[begin : begin + most]
    return line


class LineBlock:
    """Lines that follow each other, and what they weigh."""

    def __init__(self, lines: Sequence[RawLine], num_bytes: int) -> None:
        self._lines, self.num_bytes = lines, num_bytes

    def __len__(self) -> int:
        return len(self._lines)

    def lines(self) -> Iterable[RawLine]:
        return self._lines

    def sizes(self) -> Ints:
        """What each weighs."""
        return np.array([len(line.text) + LINE_BYTES for line in self._lines], np.int64)

    def part(self, first: int, end: int) -> "LineBlock":
        """Some of them."""
        some = self._lines[first:end]
        return LineBlock(some, sum(len(line.text) + LINE_BYTES for line in some))


class LineBuffer:
    """The interesting lines of a log."""

    def __init__(self, limits: LineLimits) -> None:
        self.repeats: list[Repeat] = []
        self.num_dropped = 0
        self._limits = limits
        self._max_uninformative = min(limits.same_lines, limits.uninformative_lines)
        self.counts = LineCounts(_MAX_KEYS)
        self._uncounted: list[tuple[str, bytes]] = []
        self._head: list[RawLine] = []
        self._tail: deque[LineBlock] = deque()
        self._head_bytes = self._tail_bytes = self._num_tail = 0
        self._head_is_full = False

    def add(self, line: RawLine, process: str) -> int:
        """Keep a line or count it.  Returns the index of the repeat that it went into, -1 when it is kept."""
        if not self.counts.num and len(self._uncounted) < min(
            self._limits.same_lines, self._limits.uninformative_lines
        ):
            self._uncounted.append((process, line.text))  # none of so few can be one too many
            self.put(line)
            return -1
        self._count()
        index = self._index(process, without_numbers(line.text))
        if index < 0 or self._is_room(index):
            self.put(line)
            return -1
        repeat = self.repeat(index, process, line)
        self.repeated(repeat, 1, line.number, line.offset, line.text)
        return repeat

    def _index(self, process: str, form: bytes, *, is_needed: bool = False) -> int:
        """What lines of a process and a form (as `without_numbers` gives it) are counted by; -1 where there are too
        many, and the pair is not needed."""
        counts = self.counts
        numbers = counts.process(process, is_needed=is_needed), counts.form(form, is_needed=is_needed)
        index = -1 if min(numbers) < 0 else counts.index(*numbers)
        if index < 0 and (is_needed or not counts.is_full):
            index = counts.add(*numbers, self._most(counts.forms[numbers[1]]))
        return index

    def _most(self, form: bytes) -> int:
        """How many lines of a new pair are kept."""
        is_uninformative = len(self.repeats) < _MAX_UNINFORMATIVE and _says_nothing(form)
        return self._max_uninformative if is_uninformative else self._limits.same_lines

    def rooms(self, processes: Ints, forms: Ints, nums: Ints) -> tuple[Ints, Ints]:
        """Count so many more lines of different processes and forms, by their numbers in `counts`: what each is counted
        by, -1 where there are too many, and how many of its lines are to be kept, the first."""
        self._count()
        counts = self.counts
        indexes = counts.indexes(processes, forms)
        new = np.flatnonzero((indexes < 0) & (processes >= 0) & (forms >= 0))
        if len(new) and not counts.is_full:
            some, which = np.unique(forms[new], return_inverse=True)
            mosts = np.array([self._most(counts.forms[form]) for form in some.tolist()], np.int64)
            indexes[new] = counts.add_all(processes[new], forms[new], mosts[which])
        rooms = nums.copy()
        known = np.flatnonzero(indexes >= 0)
        counted = indexes[known]
        left = counts.mosts[counted] - counts.counts[counted]
        counts.counts[counted] += nums[known]
        rooms[known] = np.clip(left, 0, nums[known])
        return indexes, rooms

    def has_repeat(self, index: int) -> bool:
        """Whether lines of this index were counted, for which there was no room."""
        return bool(self.counts.repeats[index] >= 0)

    def repeat(self, index: int, process: str, line: RawLine) -> int:
        """The repeat of an index, whose first line may be this one."""
        found = int(self.counts.repeats[index])
        if found < 0:
            found = self.counts.repeats[index] = len(self.repeats)
            number = line.number
            self.repeats.append(
                Repeat(process=process, text=line.text, count=0, first=number, last=number, last_offset=line.offset)
            )
        return found

    def count_all(self, rows: Iterable[tuple[int, int, int, int, int]], data: bytearray, offset: int) -> None:
        """More lines of indexes that have a repeat.  Each row: the index, how many lines, the number of the last one,
        and where that begins and ends in `data`, which begins at `offset` of the log."""
        repeats, repeat_of = self.repeats, self.counts.repeats
        for index, num, number, start, end in rows:
            repeat = repeats[repeat_of[index]]
            repeat.count += num
            if number >= repeat.last:
                repeat.last, repeat.last_offset, repeat.text = number, offset + start, bytes(data[start:end])

    def _count(self) -> None:
        """Count the first lines, now that it matters."""
        first, self._uncounted = self._uncounted, []
        for process, text in first:
            index = self._index(process, without_numbers(text))
            if index >= 0:
                self.counts.counts[index] += 1

    def _is_room(self, index: int) -> bool:
        """Count one more line; whether it is to be kept."""
        counts = self.counts
        counts.counts[index] += 1
        return bool(counts.counts[index] <= counts.mosts[index])

    def repeated(self, index: int, count: int, number: int, offset: int, text: bytes) -> None:
        """`count` more lines of a repeat, the last of which is this one."""
        repeat = self.repeats[index]
        repeat.count += count
        if number >= repeat.last:
            repeat.last, repeat.last_offset, repeat.text = number, offset, text

    def add_repeat(self, repeat: Repeat) -> None:
        """Lines that were counted in another part of the log, after those that were kept of it."""
        self._count()
        index, counts = self._index(repeat.process, without_numbers(repeat.text), is_needed=True), self.counts
        counts.counts[index] += repeat.count
        if not self.has_repeat(index):
            counts.repeats[index] = len(self.repeats)
            self.repeats.append(repeat)
        else:
            self.repeated(int(counts.repeats[index]), repeat.count, repeat.last, repeat.last_offset, repeat.text)

    def close_head(self) -> None:
        """Lines were left out here: what comes now belongs to the end."""
        self._head_is_full = True

    def put(self, line: RawLine) -> None:
        """Keep a line at the end."""
        size = len(line.text) + LINE_BYTES
        limits = self._limits
        if self._head_is_full or len(self._head) >= limits.head_lines or self._head_bytes + size > limits.kept_bytes:
            self._head_is_full = True
            self.put_all(LineBlock([line], size))
        else:
            self._head.append(line)
            self._head_bytes += size

    def put_all(self, block: "LineBlock") -> None:
        """Keep lines at the end.  Of what may stand behind the gap only whole blocks are left out before `close`."""
        limits = self._limits
        if not self._head_is_full:
            whole = np.cumsum(block.sizes())
            room = min(len(block), limits.head_lines - len(self._head))
            num = int(np.searchsorted(whole[:room], limits.kept_bytes - self._head_bytes, "right"))
            self._head += block.part(0, num).lines()
            self._head_bytes += int(whole[num - 1]) if num else 0
            if num == len(block):
                return
            self._head_is_full = True
            block = block.part(num, len(block))
        self._tail.append(block)
        self._num_tail += len(block)
        self._tail_bytes += block.num_bytes
        first = self._tail[0]
        while (
            self._num_tail - len(first) >= limits.tail_lines or self._tail_bytes - first.num_bytes > limits.kept_bytes
        ):
            self._drop(first)
            first = self._tail[0]

    def _drop(self, first: "LineBlock") -> None:
        self._tail.popleft()
        self._num_tail -= len(first)
        self._tail_bytes -= first.num_bytes
        self.num_dropped += len(first)

    def close(self) -> None:
        """Leave out the lines that are too many before the last ones, exactly."""
        limits, sizes = self._limits, [np.empty(0, np.int64), *(block.sizes() for block in self._tail)]
        whole = np.cumsum(np.concatenate(sizes)[::-1])  # from the end
        num = int(np.searchsorted(whole[: limits.tail_lines], limits.kept_bytes, "right"))
        kept, left = deque[LineBlock](), num
        while left:
            block = self._tail.pop()
            some = block.part(max(0, len(block) - left), len(block))
            kept.appendleft(LineBlock(list(some.lines()), some.num_bytes))
            left -= len(some)
        self.num_dropped += len(whole) - num
        self._tail, self._num_tail = kept, num

    def repeats_in_order(self) -> list[Repeat]:
        """By the lines where they begin."""
        return sorted(self.repeats, key=lambda one: one.first)

    @property
    def lines(self) -> list[RawLine]:
        """All that were kept, in order, once it was closed."""
        return [*self._head, *(line for block in self._tail for line in block.lines())]

    @property
    def num_head(self) -> int:
        """How many stand before the gap."""
        return len(self._head)
