"""Files of plain NAME=VALUE lines: .env, the output of env, NCCL's configuration files."""

import re

from allready.model.settings import Slip
from allready.variables.sources.parsed import MAX_LINES, NAME, Parsed

_DOTENV = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(.*?)\s*$", re.DOTALL)


def parse_dotenv(text: str, found: Parsed) -> None:
    """`.env`: quotes are taken off, what follows ` #` is a comment, the value of $NAME is not known."""
    for number, line in enumerate(text.split("\n")[:MAX_LINES], start=1):
        match = _DOTENV.match(line)
        if match is not None:
            found.assign(match[1], _unquoted(match[2]), number)


def parse_dump(text: str, found: Parsed) -> None:
    """The output of `env`, or /proc/PID/environ: values as they are."""
    rows = text.split("\0") if "\0" in text else text.split("\n")
    for number, row in enumerate(rows[:MAX_LINES], start=1):
        name, equals, value = row.partition("=")
        if equals and NAME.fullmatch(name):
            found.assign(name, value.rstrip("\r"), number)


def parse_nccl_conf(text: str, found: Parsed) -> None:
    """NCCL's configuration file: a blank before = belongs to the name, one after it to the value."""
    for number, line in enumerate(text.split("\n")[:MAX_LINES], start=1):
        if line.startswith("#") or "=" not in line:
            continue
        name, _, value = line.rstrip("\r").partition("=")
        if NAME.fullmatch(name):
            found.assign(name, value, number)
        elif NAME.fullmatch(name.strip()):
            found.slip(number, line, Slip.BLANK_BEFORE_EQUALS)


def _unquoted(value: str) -> str | None:
    if value[:1] in {"'", '"'}:
        mark = value[0]
        end = value.find(mark, 1)
        inner = value[1:end] if end > 0 else value
        return None if mark == '"' and "$" in inner else inner
    value = re.split(r"\s+#", value, maxsplit=1)[0].strip()
    return None if "$" in value or value.startswith("~") else value
