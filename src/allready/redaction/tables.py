"""Secrets in a column: a table of values between commas, tabs or bars whose head calls a column `password`."""

import csv
import re

from allready.patterns import compiled
from allready.redaction.places import REDACTED

HINTS = ("pass", "secret", "token", "key", "pwd")
_EDGE = r"[,;|\t]"
_HEAD = (
    rf"(?m)(?:^|(?<={_EDGE}))[ \"'*`]{{0,4}}(?:[a-z0-9]{{1,20}}[ _-])?"
    r"(?:(?P<person>passw(?:or)?d|passphrase|passcode|pwd|pass)"
    r"|(?:secret|api|access|private|auth)[ _-]?(?:access[ _-]?)?(?:key|token)|secret|token)"
    rf"[ \"'*`]{{0,4}}(?={_EDGE}|\r?$)"
)
"""One cell of a head, in small letters."""
_NOTHING = r"[-:=|+\s]*|[-+]?[\d.,%]{1,3}|(?i:none|null|true|false|yes|no|n/a|\(redacted\)|x+|\*+)"
_WORD_OR_NUMBER = r"[A-Za-z]*|[\d.,]*"
MAX_ROWS = 100_000
MAX_CELLS = 500


def without_columns(text: str, small: str) -> str:
    """The text without what stands in such columns.

    small: the same in small letters.
    """
    if len(small) != len(text):  # a letter that has no small one of its own length
        return text
    heads = [match for match in compiled(_HEAD).finditer(small) if _has_row_below(text, match)]
    if not heads:
        return text
    lines = text.split("\n")
    for match in heads:
        number = text.count("\n", 0, match.start())
        mark = _mark(lines[number], match.start() - (text.rfind("\n", 0, match.start()) + 1))
        if mark:
            _redact_below(lines, number, mark, match, text)
    return "\n".join(lines)


def _has_row_below(text: str, match: re.Match[str]) -> bool:
    end = text.find("\n", match.end())
    return 0 <= end < len(text) - 1


def _mark(line: str, at: int) -> str:
    """What stands between the cells beside this place; "" for a line of one cell."""
    near = line[:at][-1:] or next((letter for letter in line[at:] if letter in ",;|\t"), "")
    return near if near in {",", ";", "|", "\t"} else ""


def _redact_below(lines: list[str], number: int, mark: str, match: re.Match[str], text: str) -> None:
    start = text.rfind("\n", 0, match.start()) + 1
    column, size = text.count(mark, start, match.start()), lines[number].count(mark) + 1
    if size > MAX_CELLS or sum(bool(cell.strip()) for cell in lines[number].split(mark)) < 2:  # an entry of a list
        return
    for at in range(number + 1, min(len(lines), number + MAX_ROWS)):
        line = lines[at]
        if not line.strip():
            return
        cells = line.split(mark)
        if len(cells) != size:
            cells = _with_quotes(line, mark)
        if len(cells) != size:
            return
        bare = cells[column].strip(" \t\r\"'`*")
        if bare and not compiled(_NOTHING).fullmatch(bare) and (match["person"] or _is_key(bare)):
            cells[column] = cells[column].replace(bare, REDACTED, 1)
            lines[at] = mark.join(cells)


def _with_quotes(line: str, mark: str) -> list[str]:
    """The cells as they stand, of a line in which a quoted one has the mark in itself."""
    if '"' not in line:
        return []
    try:
        read = next(csv.reader([line], delimiter=mark), [])
    except csv.Error:
        return []
    return [f'"{cell}"' if mark in cell else cell for cell in read]


def _is_key(cell: str) -> bool:
    """Whether it is more than a word or a number: a tokenizer's table has a column `token` too."""
    return len(cell) >= 8 and " " not in cell and compiled(_WORD_OR_NUMBER).fullmatch(cell) is None
