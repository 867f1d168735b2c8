"""What Dockerfiles set for the programs of the image: ENV, and variables in CMD and ENTRYPOINT."""

import json
import re
from collections.abc import Iterator

from allready.model.settings import Slip
from allready.variables.sources.parsed import MAX_LINES, Parsed
from allready.variables.sources.shell import parse_arguments, parse_shell

_ENV = re.compile(r"\s*ENV\s+(.*)", re.IGNORECASE | re.DOTALL)
_START = re.compile(r"\s*(?:CMD|ENTRYPOINT)\s+(.*)", re.IGNORECASE | re.DOTALL)
_HEREDOC = re.compile(r"\s*(?:RUN|COPY|ADD)\s[^\n]*<<-?\s*([\"']?)(\w+)\1", re.IGNORECASE)
_ESCAPE = re.compile(
    r"(?:#[ \t]*\w+[ \t]*=.*\n)*?#[ \t]*escape[ \t]*=[ \t]*([\\`])[ \t]*\r?$", re.MULTILINE | re.IGNORECASE
)
_OLD_FORM = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)[ \t]+(.*)", re.DOTALL)


def parse_dockerfile(text: str, found: Parsed) -> None:
    """`ENV A=b C="d e"` and the old `ENV A b c`; values that name an ARG are not known."""
    for line, instruction in _instructions(text):
        match = _ENV.fullmatch(instruction)
        if match is None:
            if start := _START.fullmatch(instruction):
                _command(start[1].strip(), line, found)
            continue
        body = match[1].strip()
        old = _OLD_FORM.fullmatch(body)
        if old is None or "=" in body.split(None, 1)[0]:
            parse_shell("export " + body, found, first_line=line)
        elif old[2].startswith("="):
            found.slip(line, f"{old[1]} {old[2]}", Slip.BLANK_BEFORE_EQUALS)
        else:
            found.assign(old[1], None if "$" in old[2] else old[2].strip("\"'"), line)


def _command(body: str, line: int, found: Parsed) -> None:
    """What is started, as a list of words or as a script; what only the script itself uses is left out."""
    inner = Parsed(source=found.source, kind=found.kind)
    try:
        words = json.loads(body) if body.startswith("[") else None
    except (ValueError, RecursionError):
        words = None
    if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
        parse_arguments([(word, line) for word in words], inner)
    elif words is None:
        parse_shell(body, inner, first_line=line)
    found.settings += [setting for setting in inner.settings if setting.exported]


def _instructions(text: str) -> Iterator[tuple[int, str]]:
    """First line and text of each instruction, with its continued lines; comments are left out."""
    escape = match[1] if (match := _ESCAPE.match(text)) else "\\"
    pending: list[str] = []
    start = 1
    waiting = ""  # the end of a here-document, whose lines are no instructions
    for number, line in enumerate(text.split("\n")[:MAX_LINES], start=1):
        if waiting:
            waiting = "" if line.strip() == waiting else waiting
            continue
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
        whole = "".join([*pending, line])
        yield start, whole
        pending = []
        waiting = heredoc[2] if (heredoc := _HEREDOC.match(whole)) else ""
    if pending:
        yield start, "".join(pending)
