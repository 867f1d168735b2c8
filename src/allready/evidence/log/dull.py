"""Lines of NCCL that say nothing, as other logs have shown; in a log of NCCL's own lines they are only counted.

The ranks of one job print the same dozens of lines when they start.  A line is dull when no reader asks for it, no
signature knows it, it is of a known kind and has no date; all of this is in its own words (`rest`), whoever wrote it.
It is left out only where every line of the log is NCCL's and begins with NCCL's prefix, so that none is needed
to see where another thing ends.  The first and the last line of each process stay.
"""

from collections.abc import Sequence

from allready.evidence import clock as clocks
from allready.evidence import prefix
from allready.evidence.log import nccl
from allready.evidence.log.events import is_silent
from allready.evidence.log.line import Line
from allready.signatures import table

MOST_LINES = 8192
_MOST_BYTES = 320
_ZEROS = bytes.maketrans(b"123456789", b"000000000")

Raw = tuple[int, bytes, bool]

_DULL: set[tuple[bytes, bytes]] = set()
"""What stands before a line's own words, all digits as zeros, and these words."""

_TOLD: set[str] = set()
"""Words that something else knows, so that nobody need ask again whether they are dull."""

_TABLES: list[object] = []
"""The signatures that were asked."""


def sift(lines: Sequence[Raw]) -> tuple[list[Raw], int]:
    """The lines without dull ones, and how many those are."""
    _forget_other_tables()
    if not _DULL:
        return list(lines), 0
    ends: list[int] = []
    last: dict[bytes, int] = {}
    for at, (_, text, is_known) in enumerate(lines):
        end = text.find(b" ", text.find(b" NCCL ", 0, _MOST_BYTES) + 6, _MOST_BYTES) + 1
        head = text[:end]
        if not is_known or (head not in last and not prefix.is_nccl_head(head)):
            return list(lines), 0
        last[head] = at
        ends.append(end)
    left: list[Raw] = []
    shapes: dict[bytes, bytes] = {}
    for at, (end, one) in enumerate(zip(ends, lines, strict=True)):
        text = one[1]
        head = text[:end]
        shape = shapes.get(head)
        if shape is None:
            shapes[head] = head.translate(_ZEROS)
        elif (shape, text[end:]) in _DULL and last[head] != at:
            continue
        left.append(one)
    return left, len(lines) - len(left)


def learn(raw: Sequence[Raw], lines: Sequence[Line]) -> None:
    """Remember which of the lines of a log that was read were dull."""
    _forget_other_tables()
    if len(raw) != len(lines):
        return
    for (_, text, is_known), line in zip(raw, lines, strict=True):
        rest = line.prefix.rest
        if rest in _TOLD or not nccl.is_plain(rest):
            continue
        if not is_known or not line.is_understood or line.prefix.level != "INFO":
            continue
        end = len(line.text) - len(rest)
        head = line.text[:end]
        if len(text) > _MOST_BYTES or text != line.text.encode("utf-8", "replace") or not head.isascii():
            continue
        if is_silent(head, rest) and prefix.is_nccl_head(text[:end]) and clocks.latest_dated([text[end:]]) is None:
            if len(_DULL) >= MOST_LINES:
                _DULL.clear()
            _DULL.add((text[:end].translate(_ZEROS), text[end:]))
        elif len(rest) <= _MOST_BYTES:
            if len(_TOLD) >= MOST_LINES:
                _TOLD.clear()
            _TOLD.add(rest)


def _forget_other_tables() -> None:
    """What other signatures did not ask for, these may."""
    now = table.by_anchor()
    if not _TABLES or _TABLES[0] is not now:
        forget()
        _TABLES[:] = [now]


def forget() -> None:
    """As if no log had been read."""
    _DULL.clear()
    _TOLD.clear()
