"""ENV lines of Dockerfiles."""

import re
from collections.abc import Iterator

from allready.model.settings import Slip
from allready.variables.sources.parsed import MAX_LINES, Parsed
from allready.variables.sources.shell import parse_shell

_ENV = re.compile(r"\s*ENV\s+(.*)", re.IGNORECASE | re.DOTALL)
_ESCAPE = re.compile(
    r"(?:#[ \t]*\w+[ \t]*=.*\n)*?#[ \t]*escape[ \t]*=[ \t]*([\\`])[ \t]*\r?$", re.MULTILINE | re.IGNORECASE
)
_OLD_FORM = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)[ \t]+(.*)", re.DOTALL)


def parse_dockerfile(text: str, found: Parsed) -> None:
    """`ENV A=b C="d e"` and the old `ENV A b c`; values that name an ARG are not known."""
    for line, instruction in _instructions(text):
        match = _ENV.fullmatch(instruction)
        if match is None:
            continue
        body = match[1].strip()
        old = _OLD_FORM.fullmatch(body)
        if old is None or "=" in body.split(None, 1)[0]:
            parse_shell("export " + body, found, first_line=line)
        elif old[2].startswith("="):
            found.slip(line, f"{old[1]} {old[2]}", Slip.BLANK_BEFORE_EQUALS)
        else:
            found.assign(old[1], None if "$" in old[2] else old[2].strip("\"'"), line)


def _instructions(text: str) -> Iterator[tuple[int, str]]:
    """First line and text of each instruction, with its continued lines; comments are left out."""
    escape = match[1] if (match := _ESCAPE.match(text)) else "\\"
    pending: list[str] = []
    start = 1
    for number, line in enumerate(text.split("\n")[:MAX_LINES], start=1):
        if line.lstrip().startswith("#"):
            if pending:
                pending.append("\\\n")
            continue
        if not pending:
            start = number
        line = line.rstrip("\r")
        if line.rstrip().endswith(escape):
            pending.append(line.rstrip()[:-1] + "\\\n")
            continue
        yield start, "".join([*pending, line])
        pending = []
    if pending:
        yield start, "".join(pending)
