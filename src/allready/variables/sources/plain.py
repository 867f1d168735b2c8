"""Files of plain NAME=VALUE lines: .env, the output of env, NCCL's configuration files."""

import re

from allready.variables.sources.parsed import NAME, Assignment, Found

_DOTENV = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)(\s*)=(\s*)(.*?)\s*$", re.DOTALL)
MAX_LINES = 20_000


def parse_dotenv(text: str) -> Found:
    """`.env`: quotes are taken off, what follows ` #` is a comment, the value of $NAME is not known."""
    found = Found()
    for number, line in enumerate(text.split("\n")[:MAX_LINES], start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _DOTENV.match(line)
        if match is None:
            continue
        name, _, _, value = match.groups()
        found.assignments.append(Assignment(name, _unquoted(value), number))
    return found


def parse_dump(text: str) -> Found:
    """The output of `env`, or /proc/PID/environ: values as they are."""
    found = Found()
    rows = text.split("\0") if "\0" in text else text.split("\n")
    for number, row in enumerate(rows[:MAX_LINES], start=1):
        name, equals, value = row.partition("=")
        if equals and NAME.fullmatch(name):
            found.assignments.append(Assignment(name, value.rstrip("\r"), number))
    return found


def parse_nccl_conf(text: str) -> Found:
    """NCCL's configuration file: a blank before = belongs to the name, one after it to the value."""
    found = Found()
    for number, line in enumerate(text.split("\n")[:MAX_LINES], start=1):
        if line.startswith("#") or "=" not in line:
            continue
        name, _, value = line.rstrip("\r").partition("=")
        if NAME.fullmatch(name):
            found.assignments.append(Assignment(name, value, number))
        elif NAME.fullmatch(name.strip()):
            found.malformed.append((number, line, "blank-before-equals"))
    return found


def _unquoted(value: str) -> str | None:
    if value[:1] in {"'", '"'}:
        mark = value[0]
        end = value.find(mark, 1)
        inner = value[1:end] if end > 0 else value
        return None if mark == '"' and "$" in inner else inner
    value = re.split(r"\s+#", value, maxsplit=1)[0].strip()
    return None if "$" in value or value.startswith("~") else value
