"""Files of plain NAME=VALUE lines: .env, the output of env, NCCL's configuration files."""

import re
from collections.abc import Callable, Iterator

from allready.model.settings import Slip
from allready.patterns import compiled
from allready.variables.sources.parsed import MAX_LINES, NAME, Parsed
from allready.variables.sources.shell import parse_shell

_DOTENV = r"(?s)\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(.*?)\s*$"


_LUA = r"(?s)\s*(setenv|pushenv)\s*\(\s*[\"']([A-Za-z_][A-Za-z0-9_]*)[\"']\s*,\s*(?:([\"'])(.*?)\3\s*\)|.)"
_HCL_PAIR = (
    r"\bname\s{0,20}=\s{0,20}\"([A-Za-z_][A-Za-z0-9_]{0,200})\"[\s,]{0,80}"
    r"value\s{0,20}=\s{0,20}\"?([^\"\n,}]{0,4000}?)[\"\s,}]"
)
_HCL_ENTRY = r"(?m)(?:^|[{,])[ \t]*\"?([A-Z][A-Z0-9]*_[A-Z0-9_]{1,200})\"?[ \t]*=[ \t]*\"([^\"\n]{0,4000})\""
_POWERSHELL = r"(?i)\$env:([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*(?:#.*)?$"
_CMD_SET = r"(?i)@?set\s+\"?([A-Za-z_][A-Za-z0-9_]*)=([^\"]*)\"?$"
_MAKE_EXPORT = r"export\s+([A-Za-z_][A-Za-z0-9_]*)\s*[:?+]{0,2}=\s*(.*?)\s*(?:#.*)?$"
_SUPERVISED = r"([A-Za-z_][A-Za-z0-9_]*)=(\"[^\"]*\"|'[^']*'|[^,\s]*)"
_TOML_LIST = r"\s*([A-Za-z_-]+)\s*=\s*\[(.*)\]\s*$"
_TOML_PAIR = r"[\"']([A-Za-z_][A-Za-z0-9_]*)=([^\"']*)[\"']"
_TOML_TABLE = r"\[{1,2}([^\[\]]{1,200})\]{1,2}"


def parse_dotenv(text: str, found: Parsed, *, first_line: int = 1) -> None:
    """`.env`: quotes are taken off, what follows ` #` is a comment, the value of $NAME is not known."""
    for number, line in enumerate(text.split("\n")[:MAX_LINES], start=first_line):
        match = compiled(_DOTENV).match(line)
        if match is not None:
            found.assign(match[1], _unquoted(match[2]), number)


def parse_dump(text: str, found: Parsed) -> None:
    """The output of `env`, or /proc/PID/environ: values as they are."""
    rows = text.split("\0") if "\0" in text else text.split("\n")
    for number, row in enumerate(rows[:MAX_LINES], start=1):
        name, equals, value = row.partition("=")
        if equals and compiled(NAME).fullmatch(name):
            found.assign(name, value.rstrip("\r"), number)


def parse_unit(text: str, found: Parsed) -> None:
    """A unit of systemd: `Environment=A=b "C=d e"`, and what the commands of `Exec...=` pass on."""
    for number, line in joined_lines(text):
        key, equals, value = line.partition("=")
        if not equals or line.lstrip()[:1] in {"#", ";"}:
            continue
        if key.strip() == "Environment":
            parse_shell("export " + value.replace("$", "\\$"), found, first_line=number)
        elif key.strip().startswith("Exec"):
            parse_shell(value.lstrip("-@+!:| \t"), found, first_line=number)


def joined_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with those that a backslash at their end continues, and the number of the first."""
    pending, start = "", 1
    for number, line in enumerate(text.split("\n")[:MAX_LINES], start=1):
        start = start if pending else number
        line = line.rstrip("\r")
        if line.endswith("\\"):
            pending += f"{line[:-1]} "
            continue
        yield start, pending + line
        pending = ""
    if pending:
        yield start, pending


def parse_lua_module(text: str, found: Parsed) -> None:
    """A module of Lmod: `setenv("A", "b")`; what is put together when it is loaded is not known."""
    for number, line in enumerate(text.split("\n")[:MAX_LINES], start=1):
        if match := compiled(_LUA).match(line):
            found.assign(match[2], match[4] if match[3] else None, number)


def parse_toml(text: str, found: Parsed, is_key: Callable[[str], bool]) -> None:
    """Lines `NAME = "value"` of the tables of whose last name `is_key` is true."""
    table = ""
    for number, line in enumerate(text.split("\n")[:MAX_LINES], start=1):
        if match := compiled(_TOML_TABLE).fullmatch(line.partition("#")[0].strip()):
            table = match[1].rpartition(".")[2].strip(" \"'").lower()
        elif (match := compiled(_TOML_LIST).match(line)) and is_key(match[1]):
            for pair in compiled(_TOML_PAIR).finditer(match[2]):
                found.assign(pair[1], None if "$" in pair[2] else pair[2], number)
        elif is_key(table) and (match := compiled(_DOTENV).match(line)):
            found.assign(match[1], _unquoted(match[2]), number)


def parse_hcl(text: str, found: Parsed) -> None:
    """Terraform: `{ name = "A", value = "b" }`, and maps whose names are variables."""
    for pattern in (compiled(_HCL_PAIR), compiled(_HCL_ENTRY)):
        for match in pattern.finditer(text):
            value = None if "${" in match[2] else match[2]
            found.assign(match[1], value, text.count("\n", 0, match.start(1)) + 1)


def parse_windows(text: str, found: Parsed) -> None:
    """`$env:A = "b"` of PowerShell, `set A=b` of cmd."""
    for number, line in enumerate(text.split("\n")[:MAX_LINES], start=1):
        line = line.strip()
        if match := compiled(_POWERSHELL).match(line):
            found.assign(match[1], _unquoted(match[2]), number)
        elif match := compiled(_CMD_SET).match(line):
            found.assign(match[1], None if "%" in match[2] else match[2].rstrip(), number)


def parse_makefile(text: str, found: Parsed) -> None:
    """`export A := b`, where blanks around the mark are right, and the commands of the rules."""
    lines = text.split("\n")[:MAX_LINES]
    for number, line in enumerate(lines):
        if match := compiled(_MAKE_EXPORT).match(line):
            found.assign(match[1], None if "$" in match[2] else match[2], number + 1)
            lines[number] = ""
        elif not line.startswith("\t"):
            lines[number] = ""
    parse_shell("\n".join(line.lstrip("\t@-").replace("$$", "$") for line in lines), found)


def parse_supervisor(text: str, found: Parsed) -> None:
    """supervisord: `environment=A="b",C="d"`."""
    for number, line in joined_lines(text):
        key, equals, value = line.partition("=")
        if equals and key.strip() == "environment":
            for match in compiled(_SUPERVISED).finditer(value):
                found.assign(match[1], _unquoted(match[2]), number)


def parse_nccl_conf(text: str, found: Parsed) -> None:
    """NCCL's configuration file: a blank before = belongs to the name, one after it to the value."""
    for number, line in enumerate(text.split("\n")[:MAX_LINES], start=1):
        if line.startswith("#") or "=" not in line:
            continue
        name, _, value = line.rstrip("\r").partition("=")
        if compiled(NAME).fullmatch(name):
            found.assign(name, value, number)
        elif compiled(NAME).fullmatch(name.strip()):
            found.slip(number, line, Slip.BLANK_BEFORE_EQUALS)


def _unquoted(value: str) -> str | None:
    if value[:1] in {"'", '"'}:
        mark = value[0]
        end = value.find(mark, 1)
        inner = value[1:end] if end > 0 else value
        return None if mark == '"' and "$" in inner else inner
    value = re.split(r"\s+#", value, maxsplit=1)[0].strip()
    return None if "$" in value or value.startswith("~") else value
