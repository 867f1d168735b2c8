"""Commands in documents: fenced blocks, and NAME=VALUE between single backquotes."""

import re

from allready.variables.sources.parsed import Assignment, Found
from allready.variables.sources.python import parse_python
from allready.variables.sources.shell import parse_shell

_FENCE = re.compile(r"\s*(?:>\s*)?(```+|~~~+)\s*([\w+-]*)")
_INLINE = re.compile(r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)=([^`\s]*)`")
_SHELLS = {"", "bash", "sh", "shell", "console", "zsh", "env", "dotenv", "text", "txt"}
_PROMPT = re.compile(r"^(\s*)[$#] (?=\w)")
MAX_LINES = 50_000


def is_markdown(text: str) -> bool:
    """Whether the text has a fenced block."""
    return any(_FENCE.match(line) for line in text.split("\n", MAX_LINES)[:MAX_LINES])


def parse_markdown(text: str) -> Found:
    """All that the fenced blocks and inline codes assign."""
    found = Found()
    language: str | None = None
    fence, start = "", 1
    block: list[str] = []
    for number, line in enumerate(text.split("\n")[:MAX_LINES], start=1):
        mark = _FENCE.match(line)
        if language is None:
            if mark:
                language, fence, block, start = mark[2].lower(), mark[1], [], number + 1
            else:
                found.assignments += [Assignment(m[1], m[2], number) for m in _INLINE.finditer(line)]
        elif mark and mark[1].startswith(fence) and not mark[2]:
            _block(found, language, block, start)
            language = None
        else:
            block.append(line)
    if language is not None:
        _block(found, language, block, start)
    return found


def _block(found: Found, language: str, lines: list[str], start: int) -> None:
    if language in _SHELLS:
        inner = parse_shell("\n".join(_PROMPT.sub(r"\1", line) for line in lines), first_line=start)
        found.assignments += [Assignment(a.name, a.value, a.line) for a in inner.assignments]
        found.malformed += inner.malformed
    elif language in {"python", "py", "python3"}:
        inner = parse_python("\n".join(lines), first_line=start)
        found.assignments += inner.assignments
