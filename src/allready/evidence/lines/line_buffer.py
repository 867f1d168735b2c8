"""What is kept of the interesting lines, within bounds: the first, the last, and counts of what repeats itself."""

import functools
import re
from collections import deque

from allready.evidence.lines.model import Limits, RawLine, Repeat
from allready.evidence.lines.templates import DIGIT, HEX

_BYTES_BEFORE = 512
_MAX_KEYS = 50_000
_KEY_BYTES = 256
_MAX_HEAD_BYTES = 320
_DIGITS = b"0123456789"
_NUMBER = re.compile(rb"0x[0-9a-f]+|[0-9]+")
_PIDS = re.compile(rb":(\d{1,10}):\d{1,10} ")
_HOST_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"

Span = tuple[int, int]


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
    front = head[: match.start()]
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


class LineBuffer:
    """The interesting lines of a log."""

    def __init__(self, limits: Limits) -> None:
        self.repeats: list[Repeat] = []
        self.num_dropped = 0
        self._limits = limits
        self._counts: dict[tuple[str, bytes], int] = {}
        self._uncounted: list[tuple[str, bytes]] = []
        self._repeats: dict[tuple[str, bytes], int] = {}  # where in `repeats`
        self._head: list[RawLine] = []
        self._tail: deque[RawLine] = deque()
        self._head_bytes = self._tail_bytes = 0
        self._head_is_full = False

    def add(self, line: RawLine, process: str) -> int:
        """Keep a line or count it.  Returns the index of the repeat that it went into, -1 when it is kept."""
        if not self._counts and len(self._uncounted) < min(self._limits.same_lines, _MAX_KEYS):
            self._uncounted.append((process, line.text))  # none of so few can be one too many
            self.put(line)
            return -1
        self._count()
        key = (process, without_numbers(line.text)[:_KEY_BYTES])
        count = self._counts.get(key, 0)
        if not count and len(self._counts) >= _MAX_KEYS:
            self.put(line)
            return -1
        self._counts[key] = count + 1
        if count < self._limits.same_lines:
            self.put(line)
            return -1
        index = self._repeats.get(key)
        if index is None:
            index = self._repeats[key] = len(self.repeats)
            self.repeats.append(
                Repeat(
                    process=process,
                    text=line.text,
                    count=0,
                    first=line.number,
                    last=line.number,
                    last_offset=line.offset,
                )
            )
        self.repeated(index, 1, line.number, line.offset, line.text)
        return index

    def _count(self) -> None:
        """Count the first lines, now that it matters."""
        for process, text in self._uncounted:
            key = (process, without_numbers(text)[:_KEY_BYTES])
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
        size = len(line.text) + 100
        limits = self._limits
        if not self._head_is_full:
            if len(self._head) < limits.head_lines and self._head_bytes + size <= limits.kept_bytes:
                self._head.append(line)
                self._head_bytes += size
                return
            self._head_is_full = True
        self._tail.append(line)
        self._tail_bytes += size
        while len(self._tail) > limits.tail_lines or self._tail_bytes > limits.kept_bytes:
            gone = self._tail.popleft()
            self._tail_bytes -= len(gone.text) + 100
            self.num_dropped += 1

    @property
    def lines(self) -> list[RawLine]:
        """All that were kept, in order."""
        return [*self._head, *self._tail]

    @property
    def num_head(self) -> int:
        """How many stand before the gap."""
        return len(self._head)
