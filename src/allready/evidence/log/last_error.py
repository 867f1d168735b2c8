"""The error that a program printed last, without a traceback or an exit code; or the system's word for why a call of it
failed."""

import re
from collections.abc import Callable, Sequence

from allready.evidence.log.tracebacks import HEADER
from allready.evidence.log.trouble import is_bad, is_of_a_library, is_overcome
from allready.names import TRACEBACK_FRAME
from allready.patterns import compiled

_MAX_LINES, _MAX_ALL = 6, 16
_MAX_LETTERS, _MAX_ENDING = 300, 100
_MAX_TRACEBACK = 60
_ERROR = (
    r"(?:^|[\]|>-] {1,2}|\d {1,2}|: )\W{0,3}(?i:(?:fatal |internal |runtime )?error|fatal|critical)\b"
    r"(?: \(?\w{1,20}\)?| on (?:proc|rank|node|process) \d{1,7})?\W{0,2}[:!\]-] {0,4}(?P<said>\S.{3,300})|"
    r"^\s*(?P<raised>(?:[A-Za-z_]\w{0,40}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Iteration)[(:] ?.{1,300})"
)
"""Behind the beginning of the line, a time, a level or the name of a logger."""

_LOGGED = r"\s{0,4}[EF]\d{4} \d\d:\d\d:\d\d\.\d{3,6} {1,4}\d{1,10} [\w./-]{1,120}:\d{1,6}\] \S.{3,300}"
"""By glog, at the level of an error: the words need not say so."""

_OF_THE_SYSTEM = (
    r"(?:[:,(\]] ?|error=|errno[= ]\d{1,3}[,:]? ?)(?i:no space left on device|Disk quota exceeded|"
    r"Read-only file system|Input/output error|Stale file handle|Transport endpoint is not connected|"
    r"Cannot allocate memory|Too many open files(?: in system)?|Resource temporarily unavailable|"
    r"Network is (?:unreachable|down)|No route to host|Host is (?:unreachable|down)|Connection (?:refused|timed out)|"
    r"Cannot assign requested address|Address already in use|Name or service not known|"
    r"Temporary failure in name resolution|No address associated with hostname|No such device(?: or address)?|"
    r"Device or resource busy|Permission denied|Operation not permitted|Exec format error|Text file busy|"
    r"File name too long|Too many levels of symbolic links|no such host|"
    r"i/o timeout)(?: ?\(\d{1,3}\))?['\")\].]{0,3}\s*$|"
    r"\bfailed\b.{0,60}\berrno ?[=:]? ?\d{1,3}\W{0,2}$|"
    r"\[Errno \d{1,3}\] [A-Z][\w /-]{3,60}(?:: ['\"].{1,300})?\s*$"
)
"""By libc, whose words are the same in every program, or by Go, in small letters: a line that ends with them says why a
call failed."""

_OF_A_TRANSPORT = r"\[.{3,200}\] {1,20}\S{1,80}:\d{1,6} {1,4}UC[XCS] {1,4}(?:ERROR|FATAL) {1,4}\S"
"""By UCX or UCC at the level of an error, which is noise in a program that works."""

_HANDLED = r"\s{0,4}\[SignalInfo: \*\*\* SIG(?:TERM|INT|HUP)\b"

_OF_A_THREAD = "Exception in thread "
_MAX_BEFORE = 6
"""Lines between these words and the header: JAX and IPython say what they left out."""

_OF_SLURM = r"(?:slurmstepd|srun|slurmd): error: "
"""Slurm writes all that its plugins say at this level."""


def last_error(lines: Sequence[str], is_noise: Callable[[str], bool], *, has_begun: bool) -> tuple[int, str] | None:
    """Of the last lines that are the program's own, the first that names an error: its index and its words.

    `is_noise`: whether a line is a library's and says nothing of the program's end; `has_begun`: whether it counted
    steps.  Without any, the exception that ended one of its threads is the error: nothing caught it.
    """
    found = None
    num, is_at_end = 0, True
    end = _end_of(lines)
    for at in range(end - 1, max(-1, end - 1 - _MAX_ALL), -1):
        text = lines[at]
        if not re.search(r"\w", text) or is_noise(text):
            continue
        num += 1
        if num > _MAX_LINES:
            break
        match = compiled(_ERROR).search(text)
        is_told = match is not None and (is_bad(text) or match["raised"] is not None)
        is_logged = compiled(_LOGGED).match(text) or (not has_begun and compiled(_OF_A_TRANSPORT).match(text))
        is_error = is_told or bool(is_logged) or (is_at_end and _is_of_the_system(text))
        is_at_end = is_at_end and (is_error or is_bad(text))
        if match is not None and compiled(_OF_SLURM).match(text) and not is_bad(match["said"] or text):
            continue
        raised = match["raised"] if match is not None else None
        header = next((place for place in range(max(0, at - _MAX_TRACEBACK), at) if HEADER in lines[place]), None)
        if header is not None or any(
            lines[place].lstrip().startswith(TRACEBACK_FRAME) for place in range(max(0, at - 4), at)
        ):
            # it is a process's end, and named as that, or was caught
            is_thread = header is not None and _is_of_a_thread(lines, header)
            is_error = not has_begun and raised is not None and is_thread
        if is_error and not is_overcome(text):
            found = at, _shortened(raised + _rest_of(lines, at) if raised else text.strip())
    return found


def _is_of_the_system(text: str) -> bool:
    return not is_of_a_library(text) and compiled(_OF_THE_SYSTEM).search(text) is not None


def _end_of(lines: Sequence[str]) -> int:
    """How many lines there are without the last ones in which Paddle's handler reports a signal from outside."""
    for at in range(len(lines) - 1, max(-1, len(lines) - 1 - _MAX_LINES), -1):
        if compiled(_HANDLED).match(lines[at]) is not None:
            above = range(at - 1, max(-1, at - _MAX_TRACEBACK), -1)
            return next((top for top in above if lines[top].startswith(f"C++ {HEADER}")), at)
    return len(lines)


def _rest_of(lines: Sequence[str], at: int) -> str:
    """What the next lines say of an exception whose brackets and quotes are open where its line ends."""
    text, rest = lines[at].strip(), ""
    for line in lines[at + 1 : at + 1 + _MAX_ALL]:
        if all(text.count(one) == text.count(two) for one, two in ("[]", "()")) and text.count("'") % 2 == 0:
            break
        text += line
        rest += f" {line.strip()}"
    return rest


def _shortened(text: str) -> str:
    """Its beginning and its end, where it is long: what a command was called with says less than how it ended."""
    if len(text) <= _MAX_LETTERS:
        return text
    return f"{text[: _MAX_LETTERS - _MAX_ENDING]} ... {text[-_MAX_ENDING:]}"


def _is_of_a_thread(lines: Sequence[str], header: int) -> bool:
    """Whether Python says above the traceback that it ended a thread."""
    return any(_OF_A_THREAD in text for text in lines[max(0, header - _MAX_BEFORE) : header])
