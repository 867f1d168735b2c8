"""Secrets in a column: a table whose head calls a column `password`, its cells between commas, tabs, bars or blanks."""

import re
from collections.abc import Sequence

from allready.names import REDACTED
from allready.patterns import compiled
from allready.redaction.drawn import is_random

HINTS = ("pass", "secret", "token", "key", "pwd", "密码", "口令", "令牌", "密钥")
_MARKS = ",;|\t│┃"
_BLANKS = "  "
"""The mark of a table whose cells stand below each other, two blanks or more apart."""
_EDGE = rf"(?:[{_MARKS}]|{_BLANKS})"
_HEAD = (
    rf"(?m)(?:^|(?<=[{_MARKS}])|(?<={_BLANKS}))[ \"'*`]{{0,4}}(?:[a-z0-9]{{1,20}}[ _-])?"
    r"(?:(?P<person>passw(?:or)?d|passphrase|passcode|pwd|pass|密码|口令)"
    r"|(?:secret|api|access|private|auth)[ _-]?(?:access[ _-]?)?(?:key|token)|secret|token|令牌|密钥)"
    rf"[ \"'*`]{{0,4}}(?={_EDGE}|\r?$)"
)
"""One cell of a head, in small letters."""
_RULER = r"[-+=:|\s\u2500-\u257f]+"
"""A line between the head and the rows, or around them."""
_OF_BLANKS = r"[A-Z][A-Z ./()#-]*"
"""The head of a table whose cells stand below each other; one with other letters may be a list of names and values."""
_NOTHING = r"[-:=|+\s]*|[-+]?[\d.,%]{1,3}|(?i:none|null|true|false|yes|no|n/a|\(redacted\)|x+|\*+)"
_WORD_OR_NUMBER = r"[A-Za-z]*|[\d.,]*"
MAX_CELLS = 500
_FEWEST_CELLS = 2


Columns = dict[int, bool]
"""Which, and whether what stands in one is a person's, which may be a plain word or a number."""


def without_columns(text: str, small: str) -> str:
    """The text without what stands in such columns; in linear time, also where every line is a head.

    small: the same in small letters.
    """
    if len(small) != len(text):  # a letter that has no small one of its own length
        return text
    heads: dict[int, list[tuple[int, int, bool]]] = {}  # line -> places in it
    number = start = 0
    for match in compiled(_HEAD).finditer(small):
        number += small.count("\n", start, match.start())
        start = match.start()
        at = start - (small.rfind("\n", 0, start) + 1)
        heads.setdefault(number, []).append((at, at + len(match[0]), match["person"] is not None))
    if not heads:
        return text
    lines = text.split("\n")
    open_tables: dict[str, tuple[int, Columns]] = {}  # by what stands between its cells: their number, and columns
    for number in range(min(heads), len(lines)):
        line = lines[number]
        begun = _begun(line, heads.get(number, ()))
        if not line.strip():
            open_tables.clear()
        elif compiled(_RULER).fullmatch(line):
            continue
        for mark, (size, columns) in list(open_tables.items()):
            left = {at: is_person for at, is_person in columns.items() if at not in begun.get(mark, ())}
            redacted = _without_cells(lines[number], mark, size, left)
            if redacted is None:
                del open_tables[mark]
            else:
                lines[number] = redacted
        for mark, found in begun.items():
            _, columns = open_tables.get(mark, (0, {}))
            open_tables[mark] = len(_cells(line, mark)[0]), columns | found
    return "\n".join(lines)


def _begun(line: str, places: Sequence[tuple[int, int, bool]]) -> dict[str, Columns]:
    """The columns of which this line is the head, by what stands between its cells."""
    found: dict[str, Columns] = {}
    for at, end, is_person in places[:MAX_CELLS]:
        if mark := _mark(line, at, end):
            found.setdefault(mark, {})[len(_cells(line[:at] + "x", mark)[0]) - 1] = is_person
    return {mark: columns for mark, columns in found.items() if _is_table(line, mark)}


def _is_table(line: str, mark: str) -> bool:
    """Whether it has cells enough, which one that stands alone in its line has not: that is an entry of a list."""
    cells, _ = _cells(line, mark)
    if mark == _BLANKS and not compiled(_OF_BLANKS).fullmatch(line.strip()):
        return False
    return len(cells) <= MAX_CELLS and sum(bool(cell.strip()) for cell in cells) >= _FEWEST_CELLS


def _mark(line: str, at: int, end: int) -> str:
    """What stands between a cell and the next one; "" for a line of one cell."""
    for near in (line[:at].rstrip(" ")[-1:], line[end:].lstrip(" ")[:1]):
        if near and near in _MARKS:
            return near
    return _BLANKS if _BLANKS in line.strip() else ""


def _cells(line: str, mark: str) -> tuple[list[str], list[str]]:
    """The cells of a line, and what stands in front of each and behind the last one."""
    if mark != _BLANKS:
        cells = line.split(mark)
        return cells, ["", *[mark] * (len(cells) - 1), ""]
    parts = re.split(r"( {2,})", line.strip())
    indent = line[: len(line) - len(line.lstrip())]
    return parts[::2], [indent, *parts[1::2], line[len(line.rstrip()) :]]


def _without_cells(line: str, mark: str, size: int, columns: Columns) -> str | None:
    """A row of a table without what stands in these columns; None where it is no row of it."""
    cells, between = _cells(line, mark)
    if len(cells) != size and mark != _BLANKS:
        cells = _with_quotes(line, mark)
        between = ["", *[mark] * (size - 1), ""]
    if len(cells) != size:
        return None
    for column, is_person in columns.items():
        bare = cells[column].strip(" \t\r\"'`*")
        if bare and not compiled(_NOTHING).fullmatch(bare) and (is_person or _is_key(bare, mark)):
            cells[column] = cells[column].replace(bare, REDACTED, 1)
    return "".join(part for pair in zip(between, cells, strict=False) for part in pair) + between[-1]


def _with_quotes(line: str, mark: str) -> list[str]:
    """The cells as they stand, of a line in which a quoted one has the mark in itself."""
    if '"' not in line:
        return []
    import csv  # few texts are tables

    try:
        read = next(csv.reader([line], delimiter=mark), [])
    except csv.Error:
        return []
    return [f'"{cell}"' if mark in cell else cell for cell in read]


def _is_key(cell: str, mark: str) -> bool:
    """Whether it is more than a word or a number: a tokenizer's table has a column `token` too."""
    if mark == _BLANKS:
        return is_random(cell, with_digits=False)
    return len(cell) >= 8 and " " not in cell and compiled(_WORD_OR_NUMBER).fullmatch(cell) is None
