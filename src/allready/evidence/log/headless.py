"""Exceptions whose traceback is cut: the header is missing, or all of it but the last line."""

import re
from collections.abc import Sequence

from allready.evidence.log import tracebacks
from allready.evidence.log.line import Line
from allready.evidence.log.tracebacks import Failure, Traceback
from allready.patterns import compiled

_FRAME = r'\s{1,12}File "[^"]{1,1000}", line \d{1,9}, in \S'
_NAME = (
    r"(?:[A-Za-z_]\w{0,80}\.){0,12}[A-Z]\w{0,80}?"
    r"(?:Error|Exception|Interrupt|Exit|Iteration|Timeout|Expired|Failure|Died)"
)
_EXCEPTION = rf"(?P<name>{_NAME}): (?P<message>\S.*)$"
_WORDLESS = rf"(?P<name>{_NAME}):(?P<message>)\s*$"  # its words stand below
_NAMED = rf"{_NAME}$"


def begins(line: Line) -> bool:
    """Whether it is a frame of a traceback."""
    return line.text.find(", line ") >= 0 and compiled(_FRAME).match(line.rest) is not None


def read(lines: Sequence[Line], start: int) -> Traceback | None:
    """The traceback of which `lines[start]` is the first frame that is left; None where no exception follows."""
    block = tracebacks.read(lines, start, has_header=False)
    return block if block is not None and compiled(_NAMED).match(block.failures[0].name) is not None else None


def last_words(lines: Sequence[Line], taken: set[int]) -> Traceback | None:
    """An exception that stands alone behind all other lines of its rank, without any frame: what a person copied.

    It is taken only at the end of the log; what a program prints of an exception that it caught looks the same.
    """
    is_indented = True  # all that stands below, as further words of an exception mostly are
    for at in range(len(lines) - 1, max(-1, len(lines) - 1 - tracebacks.MAX_MESSAGE_LINES), -1):
        line = lines[at]
        if not line.rest.strip() or line.prefix.kind == "nccl":
            continue
        if at in taken or line.prefix.kind:
            return None
        match = (compiled(_EXCEPTION).match(line.rest) if is_indented else None) or compiled(_WORDLESS).match(line.rest)
        if match is not None:
            return None if _are_several(lines, at) else _alone(lines, at, match)
        is_indented = is_indented and line.rest[0] in " \t"
    return None


def _are_several(lines: Sequence[Line], at: int) -> bool:
    """Whether others stand above: then it is not known which came first, and signatures know what they mean."""
    above = (line.rest for line in lines[:at] if not line.is_understood)
    return any(
        compiled(_EXCEPTION).match(text) is not None or compiled(_WORDLESS).match(text) is not None for text in above
    )


def _alone(lines: Sequence[Line], at: int, match: re.Match[str]) -> Traceback:
    failure = Failure(match["name"], match["message"][:2000])
    failure.more += [line.rest[:1000] for line in lines[at + 1 :] if line.rest.strip()]
    return Traceback(
        start=at,
        last=at,
        failures=[failure],
        root=failure,
        lines=[lines[at].rest[:500]],
        error_lines=[at],
        taken=[at],
        is_deadly=lines[at].prefix.rank is not None,
        is_open=True,
        is_logged=False,
        is_launcher=False,
    )
