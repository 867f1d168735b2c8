"""Statuses of XLA's coordination service: which call was answered so stands some lines below the message."""

from collections.abc import Sequence

from allready.evidence.log.line import Line
from allready.patterns import compiled

_MARKS = ("absl::Status: ", "RuntimeError: DEADLINE_EXCEEDED: Deadline Exceeded")
_CALL = r"RPC: /[\w.]{1,100}/(\w{1,60})"
_MAX_BELOW = 8


def join(lines: Sequence[Line]) -> None:
    """Put the call's name behind the message: without it a start that failed reads like a job that was lost."""
    for at, line in enumerate(lines):
        if any(mark in line.text for mark in _MARKS) and (call := _call_below(lines, at)) is not None:
            rest = f"{line.rest.rstrip()} (RPC: {call})"
            line.text = line.text[: len(line.text) - len(line.rest)] + rest
            line.prefix = line.prefix._replace(rest=rest)


def _call_below(lines: Sequence[Line], at: int) -> str | None:
    opener = lines[at]
    num_seen = 0
    for line in lines[at + 1 : at + 1 + 8 * _MAX_BELOW]:
        if line.prefix.writer != opener.prefix.writer:
            continue
        num_seen += 1
        if not line.continues(opener) or num_seen > _MAX_BELOW:
            return None
        found = compiled(_CALL).match(line.rest.strip())
        if found is not None:
            line.is_understood = True
            return found[1]
    return None
