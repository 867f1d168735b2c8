"""Jupyter notebooks: Python cells, `%env`, and commands behind `!`."""

import json
import re
from collections.abc import Iterator

from allready.model.settings import Slip
from allready.patterns import compiled
from allready.variables.sources.parsed import Parsed
from allready.variables.sources.python import parse_python
from allready.variables.sources.shell import parse_shell

_ENV = r"\s*%(?:env|set_env)\s+([A-Za-z_][A-Za-z0-9_]*)(?:\s*=\s*|\s+)(\S.*?)\s*$"
MAX_CELLS = 2000


def parse_notebook(text: str, found: Parsed) -> None:
    """What the code cells assign; each line where the file has it."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        found.slip(1, "it is no JSON", Slip.UNREADABLE)
        return
    at = 0
    for lines in _cells(content):
        mark = json.dumps(lines[0], ensure_ascii=False)[1:-1] if lines else ""
        place = text.find(mark, at)
        if place >= 0:
            at = place
        _cell([line.rstrip("\n") for line in lines], text.count("\n", 0, at) + 1, found)


def _cells(content: object) -> Iterator[list[str]]:
    """The lines of each code cell."""
    cells = content.get("cells") if isinstance(content, dict) else None
    for cell in cells[:MAX_CELLS] if isinstance(cells, list) else ():
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source")
            lines = source.splitlines(keepends=True) if isinstance(source, str) else source
            if isinstance(lines, list) and all(isinstance(line, str) for line in lines):
                yield lines


def _cell(lines: list[str], first: int, found: Parsed) -> None:
    if lines and re.match(r"%%(?:bash|sh|script)\b", lines[0]):
        parse_shell("\n".join(lines[1:]), found, first_line=first + 1)
        return
    python = list(lines)
    for place, line in enumerate(lines):
        if line.lstrip()[:1] in {"%", "!"}:
            python[place] = ""
            if match := compiled(_ENV).match(line):
                found.assign(match[1], None if "$" in match[2] or "{" in match[2] else match[2], first + place)
            elif line.lstrip().startswith("!"):
                inner = found.within()
                parse_shell(line.lstrip()[1:], inner, first_line=first + place)
                found.settings += [s for s in inner.settings if s.exported and "=" in line]
    parse_python("\n".join(python), found, first_line=first)
