"""What torchelastic reports: its table of failed ranks, its line `Rendezvous complete`, a worker's error file."""

import json
import re
from collections.abc import Sequence

from msgspec import Struct

from allready.evidence import clock as clocks
from allready.evidence.log.line import Line
from allready.evidence.log.tracebacks import Failure, read_text
from allready.evidence.untyped import as_dict, as_text
from allready.patterns import compiled

MAX_SECTION_LINES = 6000

_SECTION = r"\s*(?:Failures|Root Cause(?: \(first observed failure\))?|Other Failures):\s*$"
_BORDER = r"\s*(?:={8,}|-{8,}|\*{8,})\s*$"
_ENTRY = r"\s*\[(\d{1,7})\]:\s*$"
_FIELD = r"\s+(time|host|rank|exitcode|error_file|traceback|msg)\s*: ?(.*)$"
_RANK = r"(\d{1,7}) \(local_rank: (\d{1,5})\)"
_EXIT = r"(-?\d{1,6}) \(pid: (\d{1,9})\)"
_WHEN = r"(\d{4})-(\d\d)-(\d\d)_(\d\d):(\d\d):(\d\d)"
_SETTING = r"\s+(\w{1,40})=(.{0,2000})$"
_ERROR_START = r'\s*\{\s*"message"\s*:\s*\{\s*"message"\s*:\s*"'
_NOTHING = ("To enable traceback see", "Signal ", "<N/A>")


class FailedProcess(Struct):
    """One failed process of the table."""

    number: int  # line
    is_first: bool
    rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    exit_code: int | None = None
    host: str | None = None
    time_s: float | None = None
    words: list[str] = []

    @property
    def failure(self) -> Failure | None:
        """The exception that `@record` wrote down."""
        if not self.words or self.words[0].startswith(_NOTHING):
            return None
        return read_text("\n".join(self.words))


def is_section(line: Line) -> bool:
    """Whether a part of the table begins here."""
    return compiled(_SECTION).match(line.rest) is not None


def read_section(lines: Sequence[Line], start: int) -> tuple[list[FailedProcess], list[int]]:
    """The entries below `Failures:` or `Root Cause`, and the indices of their lines."""
    opener = lines[start]
    is_first = "Root Cause" in opener.rest
    entries: list[FailedProcess] = []
    taken = [start]
    in_words = False
    for at in range(start + 1, min(len(lines), start + MAX_SECTION_LINES)):
        line = lines[at]
        if not line.continues(opener):
            continue
        text = line.rest
        if compiled(_ENTRY).match(text):
            entries.append(FailedProcess(line.number, is_first))
            in_words = False
        elif compiled(_BORDER).match(text):
            taken.append(at)
            if entries or not is_first:
                break
            continue
        elif compiled(_SECTION).match(text) or (not in_words and text.strip() and not text[0].isspace()):
            break
        elif entries:
            found = compiled(_FIELD).match(text)
            if found is not None and not (in_words and found[1] != "traceback" and len(entries[-1].words) > 1):
                in_words = found[1] in ("traceback", "msg")
                _fill(entries[-1], found[1], found[2])
            elif in_words and len(entries[-1].words) < 400:
                entries[-1].words.append(text.removeprefix("  "))
        taken.append(at)
    return [entry for entry in entries if entry.pid is not None or entry.rank is not None], taken


def _fill(entry: FailedProcess, name: str, value: str) -> None:
    value = value.strip()
    if name in ("traceback", "msg"):
        if value:
            entry.words.append(value)
        return
    match: re.Match[str] | None
    if name == "rank" and (match := compiled(_RANK).match(value)):
        entry.rank, entry.local_rank = int(match[1]), int(match[2])
    elif name == "exitcode" and (match := compiled(_EXIT).match(value)):
        entry.exit_code, entry.pid = int(match[1]), int(match[2])
    elif name == "host" and not value.startswith("localhost"):
        entry.host = value or None
    elif name == "time" and (match := compiled(_WHEN).match(value)):
        entry.time_s = clocks.dated(*map(int, match.groups()))


def read_settings(lines: Sequence[Line], start: int) -> tuple[dict[str, str], list[int]]:
    """`name=value` lines below `Rendezvous complete`."""
    values: dict[str, str] = {}
    taken = [start]
    for at in range(start + 1, min(len(lines), start + 200)):
        line = lines[at]
        if not line.continues(lines[start]):
            continue
        match = compiled(_SETTING).match(line.rest)
        if match is None:
            if line.rest.strip():
                break
            continue
        values[match[1]] = match[2].strip()
        taken.append(at)
        if len(values) >= 32:
            break
    return values, taken


def numbers(text: str | None) -> list[int]:
    """`[2, 3]` -> 2, 3."""
    return [int(n) for n in re.findall(r"\d{1,7}", text or "")[:65_536]]


class ErrorFile(Struct):
    """What a worker's error.json says."""

    failure: Failure | None
    text: str
    time_s: float | None


def read_error_file(text: str) -> ErrorFile | None:
    """A worker's error.json, also when it is cut; None when it is something else.

    Its time is true seconds since 1970, as if the node's clock ran in UTC.
    """
    message, callstack, stamp = _whole_error(text) or _cut_error(text)
    if message is None:
        return None
    failure = read_text(callstack) if callstack else None
    if failure is None:
        failure = read_text(message)
    return ErrorFile(failure=failure, text=message[:1000], time_s=stamp)


def _whole_error(text: str) -> tuple[str | None, str | None, float | None] | None:
    try:
        outer = json.loads(text)
    except (ValueError, RecursionError):
        return None
    inner = outer.get("message") if isinstance(outer, dict) else None
    if isinstance(inner, str):
        return inner, None, _stamp(outer.get("timestamp"))
    if not isinstance(inner, dict) or not isinstance(inner.get("message"), str):
        return None, None, None
    extra = as_dict(inner.get("extraInfo"))
    return inner["message"], as_text(extra.get("py_callstack")), _stamp(extra.get("timestamp"))


def _cut_error(text: str) -> tuple[str | None, str | None, float | None]:
    if not compiled(_ERROR_START).match(text):
        return None, None, None
    found = re.search(r'"message": *"((?:[^"\\]|\\.){0,20000})', text)
    callstack = re.search(r'"py_callstack": *"((?:[^"\\]|\\.){0,60000})', text)
    stamp = re.search(r'"timestamp": *"?(\d{9,11})', text)
    return (
        None if found is None else _unescaped(found[1]),
        None if callstack is None else _unescaped(callstack[1]),
        _stamp(stamp[1]) if stamp else None,
    )


def _unescaped(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text


def _stamp(value: object) -> float | None:
    try:
        time_s = float(value) if isinstance(value, (str, int, float)) else None
    except (ValueError, OverflowError):
        return None
    return time_s if time_s is not None and 1e9 < time_s < 7e9 else None
