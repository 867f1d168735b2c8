"""Commands in documents: fenced blocks, and NAME=VALUE between single backquotes."""

from allready.patterns import compiled
from allready.variables.sources.parsed import MAX_LINES, Parsed
from allready.variables.sources.python import parse_python
from allready.variables.sources.shell import parse_shell

_FENCE = r"\s*(?:>\s*)?(```+|~~~+)\s*([\w+-]*)"
_INLINE = r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)=([^`\s]*)`"
_SHELLS = {"", "bash", "sh", "shell", "console", "zsh", "env", "dotenv", "text", "txt"}
_PROMPT = r"^(\s*)[$#] (?=\w)"


def is_markdown(text: str) -> bool:
    """Whether the text has a fenced block."""
    return any(compiled(_FENCE).match(line) for line in text.split("\n", MAX_LINES)[:MAX_LINES])


def parse_markdown(text: str, found: Parsed) -> None:
    """All that the fenced blocks and inline codes assign."""
    language: str | None = None
    fence, start = "", 1
    block: list[str] = []
    for number, line in enumerate(text.split("\n")[:MAX_LINES], start=1):
        mark = compiled(_FENCE).match(line)
        if language is None:
            if mark:
                language, fence, block, start = mark[2].lower(), mark[1], [], number + 1
            else:
                for inline in compiled(_INLINE).finditer(line):
                    found.assign(inline[1], inline[2], number)
        elif mark and mark[1].startswith(fence) and not mark[2]:
            _block(found, language, block, start)
            language = None
        else:
            block.append(line)
    if language is not None:
        _block(found, language, block, start)


def _block(found: Parsed, language: str, lines: list[str], start: int) -> None:
    """One example: a reader may export what it only assigns, and its calls belong to no script of the job."""
    inner = found.within()
    if language in _SHELLS:
        parse_shell("\n".join(compiled(_PROMPT).sub(r"\1", line) for line in lines), inner, first_line=start)
        found.malformed += inner.malformed
    elif language in {"python", "py", "python3"}:
        parse_python("\n".join(lines), inner, first_line=start)
    for setting in inner.settings:
        found.assign(setting.name, setting.value, setting.line or start)
