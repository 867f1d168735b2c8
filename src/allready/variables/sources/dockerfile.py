"""ENV lines of Dockerfiles."""

import re
from collections.abc import Iterator

from allready.variables.sources.parsed import NAME, Assignment, Found
from allready.variables.sources.shell import parse_shell

_ENV = re.compile(r"\s*ENV\s+(.*)", re.IGNORECASE | re.DOTALL)
_OLD_FORM = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)[ \t]+(.*)", re.DOTALL)
MAX_LINES = 20_000


def parse_dockerfile(text: str) -> Found:
    """`ENV A=b C="d e"` and the old `ENV A b c`; values that name an ARG are not known."""
    found = Found()
    for line, instruction in _instructions(text):
        match = _ENV.fullmatch(instruction)
        if match is None:
            continue
        body = match[1].strip()
        old = _OLD_FORM.fullmatch(body)
        if old and "=" not in body.split(None, 1)[0]:
            if old[2].startswith("="):
                found.malformed.append((line, f"{old[1]} {old[2]}", "blank-before-equals"))
            else:
                found.assignments.append(Assignment(old[1], None if "$" in old[2] else old[2].strip("\"'"), line))
            continue
        inner = parse_shell("export " + body, first_line=line)
        found.assignments += [a for a in inner.assignments if NAME.fullmatch(a.name)]
        found.malformed += inner.malformed
    return found


def _instructions(text: str) -> Iterator[tuple[int, str]]:
    """First line and text of each instruction, with its continued lines; comments are left out."""
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
        if line.rstrip().endswith("\\"):
            pending.append(line.rstrip() + "\n")
            continue
        yield start, "".join([*pending, line])
        pending = []
    if pending:
        yield start, "".join(pending)
