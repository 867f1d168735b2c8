"""What is kept of the interesting lines, within bounds: the first, the last, and counts of what repeats itself."""

import functools
import re
from collections import deque
from collections.abc import Iterable, Sequence

from allready.evidence.lines.model import Limits, RawLine, Repeat
from allready.evidence.lines.templates import DIGIT, HEX
from allready.evidence.lines.uninformative import says_nothing

_BYTES_BEFORE = 512
_MAX_KEYS = 50_000
_MAX_DULL = 10_000
LINE_BYTES = 100  # what a line takes besides its text
_KEY_BYTES = 256
_MAX_HEAD_BYTES = 320
_DIGITS = b"0123456789"
_NUMBER = re.compile(rb"0x[0-9a-f]+|[0-9]+")
HEX_NUMBER = re.compile(rb"0x(?<![0-9]0x)[0-9a-f]+")
"""What is deleted before the digits: with them it is what `_NUMBER` finds one by one."""

_PIDS = re.compile(rb".*:(\d{1,10}):\d{1,10} ", re.DOTALL)  # the last one: a time of day looks the same
_HOST_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"

Span = tuple[int, int]
_says_nothing = functools.lru_cache(maxsize=4096)(says_nothing)  # each process has the same forms


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
    match = _PIDS.search(head)
    if match is None:
        return None
    front = head[: match.start(1) - 1]
    start = len(front.rstrip(_HOST_BYTES))
    if start == len(front) or len(front) - start > 255:
        return None
    return head[start : match.end(1)].decode("ascii"), (start, match.end(1))


def without_numbers(text: bytes) -> bytes:
    """Equal for lines that differ in numbers only."""
    return _NUMBER.sub(b"", text) if b"0x" in text else text.translate(None, _DIGITS)


def numbers_in(text: bytes, but: Span | None) -> list[tuple[int, int, int]]:
    """(start, end, class) of the numbers that `without_numbers` takes out, except inside `but`."""
    spans = []
    for match in _NUMBER.finditer(text):
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

    def part(self, first: int, end: int) -> "LineBlock":
        """Some of them."""
        some = self._lines[first:end]
        return LineBlock(some, sum(len(line.text) + LINE_BYTES for line in some))


class LineBuffer:
    """The interesting lines of a log."""

    def __init__(self, limits: Limits) -> None:
        self.repeats: list[Repeat] = []
        self.num_dropped = 0
        self._limits = limits
        self._max_uninformative = min(limits.same_lines, limits.uninformative_lines)
        self._counts: dict[tuple[str, bytes], int] = {}
        self._uncounted: list[tuple[str, bytes]] = []
        self._uninformative: set[tuple[str, bytes]] = set()
        self._repeats: dict[tuple[str, bytes], int] = {}  # where in `repeats`
        self._head: list[RawLine] = []
        self._tail: deque[LineBlock] = deque()
        self._head_bytes = self._tail_bytes = self._num_tail = 0
        self._head_is_full = False

    def add(self, line: RawLine, process: str) -> int:
        """Keep a line or count it.  Returns the index of the repeat that it went into, -1 when it is kept."""
        if not self._counts and len(self._uncounted) < min(self._limits.same_lines, self._limits.uninformative_lines):
            self._uncounted.append((process, line.text))  # none of so few can be one too many
            self.put(line)
            return -1
        self._count()
        key = (process, without_numbers(line.text)[:_KEY_BYTES])
        count = self._counts.get(key, 0)
        if not count and len(self._counts) >= _MAX_KEYS:
            self.put(line)
            return -1
        most = self._most(key)
        self._counts[key] = count + 1
        if count < most:
            self.put(line)
            return -1
        index = self._repeats.get(key)
        if index is None:
            index = self._new_repeat(key, line)
        self.repeated(index, 1, line.number, line.offset, line.text)
        return index

    def room(self, process: str, form: bytes, num: int) -> int:
        """Count `num` lines of a form (as `without_numbers` gives it); how many of them are to be kept, the first."""
        if self._uncounted:
            self._count()
        key = (process, form[:_KEY_BYTES])
        count = self._counts.get(key, 0)
        if not count and len(self._counts) >= _MAX_KEYS:
            return num
        most = self._most(key)
        self._counts[key] = count + num
        return min(num, max(0, most - count))

    def _most(self, key: tuple[str, bytes]) -> int:
        """How many lines of a form of a process are kept."""
        if key not in self._counts and len(self.repeats) < _MAX_DULL and _says_nothing(key[1]):
            self._uninformative.add(key)
        return self._max_uninformative if key in self._uninformative else self._limits.same_lines

    def has_repeat(self, process: str, form: bytes) -> bool:
        """Whether lines of a form were counted before."""
        return (process, form[:_KEY_BYTES]) in self._repeats

    def count_more(self, process: str, form: bytes, num: int, first: RawLine | None, last: RawLine) -> int:
        """Lines for which there was no room; `first` is needed once.  Returns the repeat into which they went, and into
        which all further ones go."""
        key = (process, form[:_KEY_BYTES])
        index = self._repeats.get(key)
        if index is None:
            index = self._new_repeat(key, first or last)
        self.repeated(index, num, last.number, last.offset, last.text)
        return index

    def count_all(self, rows: Iterable[tuple[int, int, int, int, int]], data: bytearray, offset: int) -> None:
        """More lines of some repeats.  Each row: the repeat, how many lines, the number of the last one, and where that
        begins and ends in `data`, which begins at `offset` of the log."""
        repeats = self.repeats
        for index, num, number, start, end in rows:
            repeat = repeats[index]
            repeat.count += num
            if number >= repeat.last:
                repeat.last, repeat.last_offset, repeat.text = number, offset + start, bytes(data[start:end])

    def _new_repeat(self, key: tuple[str, bytes], line: RawLine) -> int:
        index = self._repeats[key] = len(self.repeats)
        self.repeats.append(
            Repeat(
                process=key[0], text=line.text, count=0, first=line.number, last=line.number, last_offset=line.offset
            )
        )
        return index

    def _count(self) -> None:
        """Count the first lines, now that it matters."""
        for process, text in self._uncounted:
            key = (process, without_numbers(text)[:_KEY_BYTES])
            self._most(key)
            self._counts[key] = self._counts.get(key, 0) + 1
        self._uncounted.clear()

    def repeated(self, index: int, count: int, number: int, offset: int, text: bytes) -> None:
        """`count` more lines of a repeat, the last of which is this one."""
        repeat = self.repeats[index]
        repeat.count += count
        if number >= repeat.last:
            repeat.last, repeat.last_offset, repeat.text = number, offset, text

    def add_repeat(self, repeat: Repeat) -> None:
        """Lines that were counted in another part of the log, after those that were kept of it."""
        self._count()
        self._most((repeat.process, without_numbers(repeat.text)[:_KEY_BYTES]))
        key = (repeat.process, without_numbers(repeat.text)[:_KEY_BYTES])
        self._counts[key] = self._counts.get(key, 0) + repeat.count
        index = self._repeats.get(key)
        if index is None:
            self._repeats[key] = len(self.repeats)
            self.repeats.append(repeat)
        else:
            self.repeated(index, repeat.count, repeat.last, repeat.last_offset, repeat.text)

    def close_head(self) -> None:
        """Lines were left out here: what comes now belongs to the end."""
        self._head_is_full = True

    def put(self, line: RawLine) -> None:
        """Keep a line at the end."""
        self.put_all(LineBlock([line], len(line.text) + LINE_BYTES))

    def put_all(self, block: "LineBlock") -> None:
        """Keep lines at the end.  Of what may stand behind the gap only whole blocks are left out before `close`."""
        limits = self._limits
        if not self._head_is_full:
            for at, line in enumerate(block.lines()):
                size = len(line.text) + LINE_BYTES
                if len(self._head) >= limits.head_lines or self._head_bytes + size > limits.kept_bytes:
                    self._head_is_full = True
                    block = block.part(at, len(block))
                    break
                self._head.append(line)
                self._head_bytes += size
            else:
                return
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
        limits = self._limits
        lines = [line for block in self._tail for line in block.lines()]
        begin, left_bytes = len(lines), limits.kept_bytes
        while begin and len(lines) - begin < limits.tail_lines:
            left_bytes -= len(lines[begin - 1].text) + LINE_BYTES
            if left_bytes < 0:
                break
            begin -= 1
        self.num_dropped += begin
        self._tail = deque([LineBlock(lines[begin:], limits.kept_bytes - left_bytes)])
        self._num_tail = len(lines) - begin

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
