"""What Dockerfiles set for the programs of the image: ENV, and variables in CMD and ENTRYPOINT."""

import json
import re
from collections.abc import Iterator

from msgspec.structs import replace

from allready.model.settings import Slip
from allready.patterns import compiled
from allready.variables.sources.parsed import MAX_LINES, Parsed, Written
from allready.variables.sources.shell import parse_arguments, parse_shell

_ENV = r"(?is)\s*(?:ONBUILD\s+)?ENV\s+(.*)"
_FROM = r"(?i)\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*"
_START = r"(?is)\s*(?:CMD|ENTRYPOINT)\s+(.*)"
_RUN = r"(?is)\s*(?:ONBUILD\s+)?RUN\s+((?:--\w[\w-]*(?:=\S*)?\s+)*)(.*)"
_ARG = r"(?i)\s*ARG\s+([A-Za-z_][A-Za-z0-9_]*)=(\S+)\s*"
_HEREDOC = r"(?i)\s*(?:ONBUILD\s+)?(?P<what>RUN|COPY|ADD)\s[^\n]*<<-?\s*([\"']?)(?P<end>\w+)\2[ \t]*(?P<rest>[^\n]*)"
_ONLY_SETS = r"(?:export|declare|typeset|readonly|set)\b|[A-Za-z_][A-Za-z0-9_]*=\S*$|:|true$|cd\b|#|$"
_ESCAPE = r"(?im)(?:#[ \t]*\w+[ \t]*=.*\n)*?#[ \t]*escape[ \t]*=[ \t]*([\\`])[ \t]*\r?$"
_OLD_FORM = r"(?s)([A-Za-z_][A-Za-z0-9_]*)[ \t]+(.*)"


def parse_dockerfile(text: str, found: Parsed) -> None:
    """`ENV A=b C="d e"` and the old `ENV A b c`; values that name an ARG are not known.

    What RUN and ARG set is there while the image is built only.  A stage has what the stage has that it begins FROM.
    """
    arguments: list[tuple[str, str, int]] = []
    stages: dict[str, tuple[int, ...]] = {}
    for line, instruction in _instructions(text, found):
        if match := compiled(_FROM).fullmatch(instruction):
            found.scope = (*stages.get(match[1].lower(), ()), line)
            stages[(match[2] or str(len(stages))).lower()] = found.scope
        elif match := compiled(_ENV).fullmatch(instruction):
            _environment(match[1].strip(), line, found)
        elif match := compiled(_START).fullmatch(instruction):
            _command(match[1].strip(), line, found)
        elif match := compiled(_RUN).fullmatch(instruction):
            _step(match[2].strip(), line + match[0].count("\n", 0, match.start(2)), found)
        elif match := compiled(_ARG).fullmatch(instruction):
            arguments.append((match[1], match[2].strip("\"'"), line))
    given = {setting.name for setting in found.settings if setting.exported}
    for name, value, line in arguments:
        if name not in given:
            _only_in_build(name, None if "$" in value else value, line, f"ARG {name}={value}", found)


def _environment(body: str, line: int, found: Parsed) -> None:
    if re.fullmatch(r"[A-Za-z_]\w*", body):
        found.slip(line, f"ENV {body}: a name without a value ends the build", Slip.UNREADABLE)
        return
    old = compiled(_OLD_FORM).fullmatch(body)
    if old is None or "=" in body.split(None, 1)[0]:
        parse_shell("export " + body, found, first_line=line)
    elif old[2].startswith("="):
        found.slip(line, f"{old[1]} {old[2]}", Slip.BLANK_BEFORE_EQUALS)
    else:
        found.assign(old[1], None if "$" in old[2] else old[2].strip("\"'"), line)


def _step(body: str, line: int, found: Parsed) -> None:
    """A step of the build: its variables end with it, and where it does nothing else they are of no use."""
    inner = found.within()
    _command(body, line, inner, everything=True)
    found.written += inner.written
    words = _words(body)
    commands = re.split(r"&&|\|\||[;\n]", words[-1] if words else body)
    is_lost = not inner.written and all(
        map(compiled(_ONLY_SETS).match, (command.strip(" \t\\") for command in commands))
    )
    for setting in inner.settings:
        if is_lost:
            text = f"RUN export {setting.name}={setting.value}"
            _only_in_build(setting.name, setting.value, setting.line or line, text, found)
        else:
            found.settings.append(replace(setting, exported=False))


def _only_in_build(name: str, value: str | None, line: int, text: str, found: Parsed) -> None:
    found.assign(name, value, line, exported=False)
    found.slip(line, text, Slip.ONLY_IN_BUILD, name=name)


def _command(body: str, line: int, found: Parsed, *, everything: bool = False) -> None:
    """What is started, as a list of words or as a script.

    everything: also what only the script itself uses.
    """
    inner = found.within()
    words = _words(body)
    if words:
        parse_arguments([(word, line) for word in words], inner)
    elif words is None:
        parse_shell(body, inner, first_line=line)
    found.settings += [setting for setting in inner.settings if everything or setting.exported]
    found.written += inner.written


def _words(body: str) -> list[str] | None:
    """A command that is a list of words; None for a script."""
    try:
        words = json.loads(body) if body.startswith("[") else None
    except (ValueError, RecursionError):
        return None
    if words is None:
        return None
    return words if isinstance(words, list) and all(isinstance(word, str) for word in words) else []


def _instructions(text: str, found: Parsed) -> Iterator[tuple[int, str]]:
    """First line and text of each instruction, with its continued lines; comments are left out.

    A here-document of RUN is a script, one of COPY a file.
    """
    escape = match[1] if (match := compiled(_ESCAPE).match(text)) else "\\"
    pending: list[str] = []
    start = 1
    waiting: re.Match[str] | None = None  # a here-document, whose lines are no instructions
    body: list[str] = []
    for number, line in enumerate(text.split("\n")[:MAX_LINES], start=1):
        if waiting is not None:
            if line.strip() != waiting["end"]:
                body.append(line.rstrip("\r"))
                continue
            if waiting["what"].upper() == "RUN":
                yield number - len(body), "RUN " + "\n".join(body)
            else:
                name = (waiting["rest"].split() or ["x"])[-1]
                found.written.append(Written(name, "\n".join(body), number - len(body)))
            waiting, body = None, []
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
        pending = []
        waiting = compiled(_HEREDOC).match(whole)
        if waiting is None or waiting["rest"].strip() or waiting["what"].upper() != "RUN":
            yield start, whole
    if pending:
        yield start, "".join(pending)
