"""Lines as collectors of logs keep them -> the lines that the program wrote.

Four envelopes, each found by a file's first lines: JSON records with the text in one field (Docker, Kubernetes,
CloudWatch, Google Cloud, Loki, journald, zap and logrus), one JSON document of many records with a field a line (what
`aws` and `gcloud` print), the lines of Kubernetes' nodes (CRI), of which only those in pieces have to be put together,
and colours.  A line that has not the envelope of the others passes as it is, but in a document: there it is no text.
"""

import functools
import io
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import msgspec
from msgspec import Struct

from allready.evidence import sniff
from allready.evidence.inputs.backwards import Backwards, is_backwards, is_newest_first
from allready.evidence.inputs.codecs import CHUNK, ByteFeed
from allready.evidence.inputs.intake import Guarded, Intake
from allready.evidence.inputs.moves import Moves, Places
from allready.patterns import compiled, compiled_bytes

if TYPE_CHECKING:
    from allready.evidence.lines.literals import Literals
    from allready.evidence.lines.native import Native

MAX_LAYERS = 4
"""Envelopes in envelopes: Loki keeps Docker's records, and their text has colours."""

_MAX_LINE_BYTES = 1 << 20  # a longer one passes as it is
_MAX_DOCUMENT_BYTES = 1 << 24  # of a document in one line
_MAX_JOINED = 1 << 16  # characters of a line that came in pieces; as much as is examined of one
_SAMPLE = 100
_MIN_AT_ONCE, _MAX_SINGLE = 8, 16
"""So often in a row the compiled part may stop within fewer lines; Python then takes what is left of the piece."""
_MIN_SHARE, _MIN_COLOURED = 0.9, 0.5
_STREAM_KEY = "stream"
_LOGGERS = "msg"  # of loggers that write JSON themselves; beside one of these it is a log's, not a request's
_OF_LOGGERS = frozenset({"level", "ts", "time", "severity"})
_TEXT_KEYS = ("log", "message", "textPayload", "line", "jsonPayload.message", "MESSAGE", _LOGGERS)
_TIME_KEYS = ("time", "timestamp", "@timestamp", "ts")
_TIMES = rb"timestamp|receiveTimestamp|ingestionTime|__REALTIME_TIMESTAMP"
_FIELD = rb'[ \t]+"(message|textPayload|MESSAGE|log)": ("(?:[^"\\]++|\\.)*+"),?\s*'
_TIME_FIELD = rb'[ \t]+"(' + _TIMES + rb')": "?([\dT:.Z-]{1,40})'
_INNER_FIELD = rb'"(?:message|textPayload|MESSAGE|log)": ?"(?:[^"\\]++|\\.)*+"'
_INNER_TIME = rb'"(?:' + _TIMES + rb')": ?["\d]'
_MIN_FIELDS = 2
_STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)"
_CRI = rb"(\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d)) (stdout|stderr) ([FP])(?::[^ \n]{0,40})? "
_PIECES = (b" stdout P", b" stderr P")
_COLOUR = rb"\x1b\[[\d;:]{0,40}m"
_ESCAPES = rb"\x1b(?:\[[0-?]{0,40}[ -/]{0,8}[@-~]|\][^\x07\x1b\n]{0,400}(?:\x07|\x1b\\)?|[@-Z\\^_])"


class Envelope(Protocol):
    """What is around the lines of one file.

    is_optional: lines are read in it too, but for those in pieces.
    """

    moves: Moves | None
    is_optional: bool

    def again(self) -> "Envelope":
        """The same for a file's first line."""
        ...

    def opened(self, lines: bytes) -> bytes:
        """Whole lines of the file -> what is in them."""
        ...

    def rest(self) -> bytes:
        """What is left at the end: lines in pieces, of which the last has no end."""
        ...


def envelope_of(head: bytes) -> Envelope | None:
    """What nearly all of the first lines are in; None for text as it is."""
    first = head.lstrip(b"\r\n\t ")[:1]
    if first not in (b"{", b"[") and not first.isdigit():
        return _last_of(head)
    lines = [line for line in _whole_lines(head) if line.strip()][:_SAMPLE]
    if not lines:
        return None
    if sum(compiled_bytes(_CRI).match(line) is not None for line in lines) >= _MIN_SHARE * len(lines):
        return _Cri(has_stamps=_is_log(compiled_bytes(_CRI).sub(b"", line, 1) for line in lines))
    if sniff.kind_of(head) in {sniff.LOG, sniff.ELASTIC_ERROR}:
        found = _records_of(lines) or _document_of(lines)
        if found is not None:
            return found
    return _last_of(head)


def _last_of(head: bytes) -> "Envelope | None":
    """What text may have that is in nothing else."""
    if is_coloured(head):
        return _Colours()
    return Backwards() if is_backwards(head) else None


def is_coloured(head: bytes) -> bool:
    """Whether most of the first lines have colours."""
    if b"\x1b[" not in head or b"\0" in head:
        return False
    lines = [line for line in _whole_lines(head) if line.strip()]
    return sum(compiled_bytes(_COLOUR).search(line) is not None for line in lines) >= _MIN_COLOURED * max(len(lines), 1)


def _document_of(lines: Sequence[bytes]) -> "_Document | _OneLine | None":
    """A document whose first lines have many records, each with a text and a time, on lines of their own or in one."""
    first = lines[0].strip()
    if first in (b"{", b"["):
        times = [found for line in lines if (found := compiled_bytes(_TIME_FIELD).match(line)) is not None]
        if min(sum(compiled_bytes(_FIELD).fullmatch(line) is not None for line in lines), len(times)) < _MIN_FIELDS:
            return None
        same = [found[2] for found in times if found[1] == times[-1][1]]  # there is another one of when it was taken in
        return _Document(is_backwards=is_newest_first(same))
    if not first.startswith((b"{", b"[")):
        return None
    fields = (len(pattern.findall(first)) for pattern in (compiled_bytes(_INNER_FIELD), compiled_bytes(_INNER_TIME)))
    return _OneLine() if min(fields) >= _MIN_FIELDS else None


def _whole_lines(head: bytes) -> Sequence[bytes]:
    lines = head.split(b"\n")
    return lines[:-1] if len(lines) > 1 else lines


def _records_of(lines: Sequence[bytes]) -> "_Records | None":
    """The field that nearly all records have their text in, and the one with the time."""
    found = [record for line in lines if (record := _record(line)) is not None]
    least = _MIN_SHARE * len(lines)
    if len(found) < least:
        return None
    texts, times = Counter[str](), Counter[str]()
    for record in found:
        texts.update(key for key in _TEXT_KEYS if _text_of(record, key) is not None)
        times.update(key for key in _TIME_KEYS if compiled(_STAMP).fullmatch(str(record.get(key))) is not None)
    key = next((key for key in _TEXT_KEYS if texts[key] >= least), None)
    if key is None or (len(lines) == 1 and key == "message"):  # one record alone: torch's file of an error
        return None
    inside = [text for record in found if (text := _text_of(record, key)) is not None]
    is_nested = 2 * sum(text.lstrip().startswith("{") for text in inside) >= len(inside)
    may_have_stamps = not is_nested and _is_log(text.removesuffix("\n").encode("utf-8", "replace") for text in inside)
    time_key = next((key for key in _TIME_KEYS if times[key] >= least), None) if may_have_stamps else None
    has_ends = 2 * sum(text.endswith("\n") for text in inside) > len(inside)
    return _Records(key, time_key, has_ends=has_ends)


def _text_of(record: dict[str, Any], key: str) -> str | None:
    """What a record has at a key, or below two of them."""
    outer, _, inner = key.partition(".")
    found = record.get(outer)
    if inner:
        found = found.get(inner) if isinstance(found, dict) else None
    if key == _LOGGERS and not _OF_LOGGERS & record.keys():
        return None
    return found if isinstance(found, str) else None


def _is_log(lines: Iterable[bytes]) -> bool:
    """Whether time stamps may stand before the lines: readers of logs know them, those of stacks and tables do not."""
    return sniff.kind_of(b"".join(line + b"\n" for line in lines)) == sniff.LOG


def _record(line: bytes) -> dict[str, Any] | None:
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class _Pieces:
    """Lines that come in pieces, by stream.

    Where a piece was is an empty line, so that the lines behind it keep their numbers.
    """

    def __init__(self) -> None:
        self.num_owed = 0
        self._held: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._held or self.num_owed)

    def add(self, stream: str, text: str) -> str | None:
        """One more piece of the stream's line; the line where that becomes too long to wait for its end."""
        held = self._held.pop(stream, "") + text
        if len(held) >= _MAX_JOINED or len(self._held) > 1:
            return held
        self._held[stream] = held
        self.num_owed += 1
        return None

    def ended(self, stream: str, text: str) -> str:
        """The line that ends with this piece."""
        return self._held.pop(stream, "") + text

    def owed(self) -> str:
        """The empty lines that are due before the next one."""
        found, self.num_owed = self.num_owed * "\n", 0
        return found

    def rest(self) -> list[str]:
        """Lines that have no end, where the file ends; they stand where their last pieces were."""
        found = [*self._held.values()]
        self._held.clear()
        self.num_owed = max(0, self.num_owed - len(found))
        return found


class _Records:
    """JSON records, one a line; what they say of the time stands before the text, as Kubernetes puts it."""

    is_optional = False

    def __init__(self, text_key: str, time_key: str | None, *, has_ends: bool) -> None:
        self.moves: Moves | None = Moves()
        self._has_time, self._has_ends = time_key is not None, has_ends
        self._keys = text_key, time_key
        self._decoder = _decoder(text_key, time_key, has_ends)
        self._pieces = _Pieces()
        self._native = None if "." in text_key else _native()

    def again(self) -> "_Records":
        return _Records(*self._keys, has_ends=self._has_ends)

    def opened(self, lines: bytes) -> bytes:
        assert self.moves is not None
        if self._native is None:
            return self._by_python(lines)
        text_key, time_key = self._keys
        keys = text_key, time_key or "", _STREAM_KEY if self._has_ends else ""
        out, at, num_single = list[bytes](), 0, 0
        while at < len(lines) and num_single < _MAX_SINGLE:
            if not self._pieces:
                text, at, num = self._native.records(lines, at, keys, has_ends=self._has_ends)
                self.moves.num_lines += num
                num_single = 0 if num >= _MIN_AT_ONCE else num_single + 1
                out.append(text)
            if end := lines.find(b"\n", at) + 1:
                out.append(self._one(lines[at:end]))
                at = end
        return b"".join([*out, self._by_python(lines[at:])] if at < len(lines) else out)

    def _by_python(self, lines: bytes) -> bytes:
        num = lines.count(b"\n")
        try:
            rows = self._decoder.decode_lines(lines)
            if len(rows) == num and (out := self._at_once(rows)) is not None:
                return out.encode()
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass
        return b"".join(map(self._one, _lines(lines)))

    def _at_once(self, rows: Sequence[Any]) -> str | None:
        """The text of records of one line each; None where one has more, or is a piece of a line."""
        if self._pieces:
            return None
        texts = [row.text for row in rows]
        end = "" if self._has_ends else "\n"
        out = "".join([f"{row.time} {row.text}{end}" for row in rows]) if self._has_time else end.join([*texts, ""])
        if out.count("\n") != len(rows) or (self._has_ends and not all(map(str.endswith, texts, repeat("\n")))):
            return None
        assert self.moves is not None
        self.moves.num_lines += len(rows)
        return out

    def _one(self, line: bytes) -> bytes:
        """One line of the file."""
        assert self.moves is not None
        row = self._row(line)
        text = line if row is None else self._text(row)
        out = b"" if text is None else self._pieces.owed().encode() + text
        self.moves.num_lines += 1
        return out

    def _row(self, line: bytes) -> Any:
        for data in (line, line.decode("utf-8", "replace").encode()):
            try:
                return self._decoder.decode(data)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                continue
        return None

    def _text(self, row: Any) -> bytes | None:
        """The lines of one record; None for a piece of a line."""
        text = row.text
        if self._has_ends:
            if not text.endswith("\n"):
                joined = self._pieces.add(row.stream, text)
                if joined is None:
                    return None
                text = joined
            else:
                text = self._pieces.ended(row.stream, text)
        text = text.removesuffix("\n")
        stamp = f"{row.time} " if self._has_time and "\n" not in row.time else ""
        assert self.moves is not None
        num_more = text.count("\n")
        if num_more and self.moves.is_full:
            text, num_more = text.replace("\n", " "), 0
        if num_more:
            self.moves.note(num_more)
            text = text.replace("\n", f"\n{stamp}")
        return f"{stamp}{text}\n".encode("utf-8", "replace")

    def rest(self) -> bytes:
        texts = self._pieces.rest()
        return (self._pieces.owed() + "\n".join(texts)).encode("utf-8", "replace")


@functools.cache
def _pieces() -> "Literals":
    from allready.evidence.lines.literals import Literals

    return Literals(_PIECES)  # bytes.find takes five times as long


def _native() -> "Native | None":
    from allready.evidence.lines.native import native

    return native()


@functools.cache
def _decoder(text_key: str, time_key: str | None, has_stream: bool) -> "msgspec.json.Decoder[Any]":
    outer, _, inner = text_key.partition(".")
    text = "payload" if inner else "text"
    names = {text: outer, "time": time_key or "", "stream": _STREAM_KEY if has_stream else ""}
    names = {name: key for name, key in names.items() if key}
    kind: type = msgspec.defstruct("Payload", [("text", str)], rename={"text": inner}) if inner else str
    fields: list[Any] = [(name, kind) if name == text else (name, str, "") for name in names]
    namespace = {"text": property(lambda row: row.payload.text)} if inner else {}
    row: type[Struct] = msgspec.defstruct("Row", fields, rename=names, namespace=namespace)
    return msgspec.json.Decoder(row)


def _lines(data: bytes) -> Iterator[bytes]:
    """Whole lines with their newlines; a carriage return ends none."""
    return (line + b"\n" for line in data.split(b"\n")[:-1])


class _Document:
    """One JSON document of many records, a field a line: the lines between the texts are none of the log's."""

    is_optional = False

    def __init__(self, *, is_backwards: bool) -> None:
        self._held: list[tuple[int, str]] | None = [] if is_backwards else None  # lines of the file, and their texts
        self._num_held = 0
        self.moves: Moves | None = Places() if is_backwards else Moves()

    def again(self) -> "_Document":
        return _Document(is_backwards=self._held is not None)

    def opened(self, lines: bytes) -> bytes:
        assert self.moves is not None
        if self._held is not None:
            return self._kept(lines)
        out = []
        for line in _lines(lines):
            text = self._text(line)
            if text is None:
                self.moves.num_added -= 1
            else:
                if not self.moves.is_full:
                    self.moves.note(text.count("\n"))
                out.append(f"{text}\n".encode("utf-8", "replace"))
            self.moves.num_lines += 1
        return b"".join(out)

    @staticmethod
    def _text(line: bytes) -> str | None:
        field = compiled_bytes(_FIELD).fullmatch(line)
        try:
            return None if field is None else msgspec.json.decode(field[2], type=str).removesuffix("\n")
        except (msgspec.DecodeError, UnicodeError):
            return None

    def _kept(self, lines: bytes) -> bytes:
        """Nothing before the end: the last text is the first one."""
        assert self.moves is not None
        assert self._held is not None
        for line in _lines(lines):
            self.moves.num_lines += 1
            if (text := self._text(line)) is not None:
                self._held.append((self.moves.num_lines, text))
                self._num_held += len(text)
        return self.rest() if self._num_held > _MAX_DOCUMENT_BYTES else b""

    def rest(self) -> bytes:
        held, self._num_held = self._held or [], 0
        out = []
        for number, text in reversed(held):
            assert isinstance(self.moves, Places)
            self.moves.put(number, text.count("\n") + 1)
            out.append(f"{text}\n".encode("utf-8", "replace"))
        held.clear()
        return b"".join(out)


class _OneLine:
    """JSON documents of many records, each in one line: what was the newest is the last line of its text."""

    is_optional = False

    def __init__(self) -> None:
        self.moves: Moves | None = Moves()

    def again(self) -> "_OneLine":
        return _OneLine()

    def opened(self, lines: bytes) -> bytes:
        return b"".join(map(self._one, _lines(lines)))

    def _one(self, line: bytes) -> bytes:
        assert self.moves is not None
        texts = self._texts(line)
        text = line.removesuffix(b"\n") if texts is None else "\n".join(texts).encode("utf-8", "replace")
        if num_more := text.count(b"\n"):
            if self.moves.is_full:
                text = text.replace(b"\n", b" ")
            else:
                self.moves.note(num_more)
        self.moves.num_lines += 1
        return text + b"\n"

    @staticmethod
    def _texts(line: bytes) -> list[str] | None:
        """What the records say, the oldest first; None where the line is no such document."""
        try:
            document = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        lists = document.values() if isinstance(document, dict) else [document]
        records = next((one for one in lists if isinstance(one, list) and one and isinstance(one[0], dict)), [])
        texts, times = list[str](), list[bytes]()
        for record in records:
            found = (_text_of(record, key) for key in _TEXT_KEYS) if isinstance(record, dict) else ()
            if (text := next((one for one in found if one is not None), None)) is None:
                continue
            texts.append(text.removesuffix("\n"))
            times += [str(record[key]).encode("utf-8", "replace") for key in _TIME_KEYS if key in record][:1]
        return (texts[::-1] if is_newest_first(times) else texts) or None

    def rest(self) -> bytes:
        return b""


class _Cri:
    """Lines of Kubernetes' nodes, whose stamps stay in logs: pieces are put together."""

    moves: Moves | None = None
    is_optional = True

    def __init__(self, *, has_stamps: bool) -> None:
        self._has_stamps = has_stamps
        self._pieces = _Pieces()
        self._native = _native()

    def again(self) -> "_Cri":
        return _Cri(has_stamps=self._has_stamps)

    def opened(self, lines: bytes) -> bytes:
        if self._has_stamps and not self._pieces and not len(_pieces().find(lines, len(lines), self._native)[0]):
            return lines
        return b"".join(map(self._one, _lines(lines)))

    def _one(self, line: bytes) -> bytes:
        found = compiled_bytes(_CRI).match(line)
        if found is None:
            return self._pieces.owed().encode() + line
        stamp, stream = found[1].decode(), found[2].decode()
        text = line[found.end() : -1].decode("utf-8", "surrogateescape")
        if found[3] == b"P":
            joined = self._pieces.add(stream, text)
            if joined is None:
                return b""
        else:
            joined = self._pieces.ended(stream, text)
        front = f"{stamp} {stream} F " if self._has_stamps else ""
        return f"{self._pieces.owed()}{front}{joined}\n".encode("utf-8", "surrogateescape")

    def rest(self) -> bytes:
        texts = self._pieces.rest()
        return (self._pieces.owed() + "\n".join(texts)).encode("utf-8", "surrogateescape")


class _Colours:
    """Lines with escapes of a terminal."""

    moves: Moves | None = None
    is_optional = False

    def __init__(self) -> None:
        self._native = _native()

    def again(self) -> "_Colours":
        return _Colours()

    def opened(self, lines: bytes) -> bytes:
        if b"\x1b" not in lines:
            return lines
        return compiled_bytes(_ESCAPES).sub(b"", lines) if self._native is None else self._native.uncoloured(lines)

    def rest(self) -> bytes:
        return b""


class Opened:
    """A feed of lines in envelopes, as a feed of the lines."""

    def __init__(self, feed: ByteFeed, envelope: Envelope) -> None:
        self._feed = feed
        self._envelope = envelope
        self._most = _MAX_DOCUMENT_BYTES if isinstance(envelope, _OneLine) else _MAX_LINE_BYTES
        self._parts: list[bytes] = []  # of a line whose end is not read
        self._num_held = 0
        self._is_long = False  # the beginning of the line has passed
        self._out, self._start = b"", 0
        self._is_end = False

    def read(self, most: int) -> bytes:
        while self._start >= len(self._out) and not self._is_end:
            self._out, self._start = self._next(), 0
        out = self._out[self._start : self._start + most]
        self._start += len(out)
        return out

    def _next(self) -> bytes:
        data = self._feed.read(CHUNK)
        if not data:
            self._is_end = True
            return self._last()
        end = data.rfind(b"\n") + 1
        if not end:
            return self._held(data)
        out = b""
        if self._is_long:
            first = data.find(b"\n") + 1
            out, data, end, self._is_long = data[:first], data[first:], end - first, False
            if self._envelope.moves is not None:
                self._envelope.moves.num_lines += 1
        whole = b"".join([*self._parts, data[:end]])
        self._parts, self._num_held = [], 0
        return out + (self._envelope.opened(whole) if whole else b"") + self._held(data[end:])

    def _held(self, data: bytes) -> bytes:
        """Keep the beginning of a line; of one that is too long it is given as it is."""
        if self._is_long:
            return data
        if data:
            self._parts.append(data)
            self._num_held += len(data)
        if self._num_held <= self._most:
            return b""
        rest = self._envelope.rest()
        out = (rest and rest + b"\n") + b"".join(self._parts)
        self._parts, self._num_held, self._is_long = [], 0, True
        return out

    def _last(self) -> bytes:
        held = b"".join(self._parts)
        self._parts = []
        out = self._envelope.opened(held + b"\n") if held else b""
        # A line that breaks off breaks off in the text, too: its program was still writing.  A record that can be read
        # is whole without a newline.
        is_whole = isinstance(self._envelope, _Records) and out != held + b"\n"
        rest = self._envelope.rest()
        return out + rest if is_whole or rest else out.removesuffix(b"\n")


def opened(intake: Intake, head: bytes) -> tuple[Intake, list[Envelope]]:
    """The lines that begin with `head`, out of all their envelopes; the outermost envelope is the first.

    Raises:
        DamagedError, TooMuchError, OSError: as the intake's `peek`.
    """
    envelopes: list[Envelope] = []
    while len(envelopes) < MAX_LAYERS and (envelope := envelope_of(head)) is not None:
        if any(type(one) is type(envelope) for one in envelopes) and isinstance(envelope, _Colours | Backwards):
            break
        envelopes.append(envelope)
        intake = Intake(Opened(intake, envelope))
        head = intake.peek(len(head))
    return intake, envelopes


def opened_text(text: bytes) -> bytes:
    """A piece of a log, out of all its envelopes."""
    lines, _ = opened(Intake(io.BytesIO(text)), text[: sniff.HEAD_BYTES])
    return b"".join(iter(lambda: lines.read(CHUNK), b""))


def opened_part(file: io.FileIO, start: int, stop: int, envelopes: Sequence[Envelope]) -> BinaryIO:
    """The lines of a file whose first bytes lie in [start, stop), out of what is around them."""
    feed: ByteFeed = _Span(file, start, stop)
    for envelope in envelopes:
        feed = Opened(feed, envelope)
    return io.BufferedReader(Guarded(Intake(feed)), CHUNK)


class _Span:
    """Whole lines of a file, by where they begin."""

    def __init__(self, file: io.FileIO, start: int, stop: int) -> None:
        self._file = file
        self._at = self._end_of_line(start - 1) if start else 0
        self._stop = self._end_of_line(stop - 1) if stop else 0

    def _end_of_line(self, at: int) -> int:
        """The byte after the next newline from `at` on."""
        while data := os.pread(self._file.fileno(), CHUNK, at):
            end = data.find(b"\n") + 1
            if end:
                return at + end
            at += len(data)
        return at

    def read(self, most: int) -> bytes:
        data = os.pread(self._file.fileno(), min(most, max(0, self._stop - self._at)), self._at)
        self._at += len(data)
        return data
