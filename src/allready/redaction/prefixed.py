"""Secrets of several lines in a log that puts something in front of each: a time, a pod, a rank, a mark.

`kind: Secret` and its data, a key with its value below, are known by how they stand in their lines.  Where such a line
begins with something else, that beginning says what the lines around it begin with: the same, but for its numbers.
"""

import re
from collections.abc import Callable, Iterator

from allready.patterns import compiled
from allready.redaction.places import NAME

MAX_LINES = 2000
"""Looked at before and behind a line that says that a secret is near."""
_ENDS = (
    r"(?m)[a-z0-9+/]{60,76}[ \t]*$|\bmachine[ \t]{1,9}[\w.:-]{1,253}[ \t]*$"
    r"|(?:token|secret|passw(?:or)?d|passphrase|credential|authtok|key|pass"
    r"|_(?:pwd?|pat|auth|cookie|jwt|bearer))[\w.-]{0,12}[\"']?[ \t]*"
    r"(?:(?::[ \t]*(?:(?:![\w!-]{0,30}[ \t]+)?[|>][-+0-9]{0,2}|[\[{])?|=|,|</name>|>|\{)?[ \t]*(?:#[^\n]{0,200})?\r?$"
    r"|[:=][ \t]*(?![-\d.,]{1,20}[a-z]{0,2}[ \t]*\r?$)"
    r"(?:[\"'][^\n]{0,300}|\S{1,300}(?:[ \t]{1,9}#[^\n]{0,200})?)[ \t]*\r?$)"
)
"""How lines in small letters end that may say so; much faster than `_SAYS`."""
_SAYS = (
    r"(?:^|(?<=[ \t:+>|#\]{(,]))(?:- |export )?(?:[\"']?kind[\"']?\s?:\s?[\"']?Secret\b"
    r"|[\"']?(?i:name|key|variable)[\"']?\s?:?\s?[\"']?" + NAME + r"[\"']?[,{ ]{0,3}\r?$"
    r"|[A-Za-z0-9+/]{60,76}[ \t]*$"  # base64 of several lines
    r"|machine[ \t]{1,9}[\w.:-]{1,253}[ \t]*$|<name>\s{0,9}" + NAME + r"\s{0,9}</name>"
    r"|<" + NAME + r">[ \t]*\r?$"
    r"|[\"']?" + NAME + r"[\"']?[ \t]*(?::[ \t]*(?:(?:![\w!-]{0,30}[ \t]+)?[|>][-+0-9]{0,2}|[\[{])?|=[ \t]*\[?)"
    r"[ \t]*(?:#[^\n]{0,200})?\r?$"
    r"|\? [\"']?" + NAME + r"[\"']?[ \t]*\r?$"
    r"|(?P<open>[\"']?"
    + NAME
    + r"[\"']?[ \t]*[:=][ \t]*[rbf]?(?P<quote>\"{3}|'{3}|[\"'])(?:(?!(?P=quote))[^\n]){0,300}\r?$)"
    r"|(?P<begun>[\"']?"
    + NAME
    + r"[\"']?[ \t]*[:=][ \t]*(?![-\d.,]{1,20}[A-Za-z]{0,2}[ \t]*\r?$)[^\s()]{1,300}(?:[ \t]+#[^\n]{0,200})?\r?$))"
)
_OPENS = r"(?:[ \t]*(?:[{\[(,]|<[\w.-]{1,60}>))*[ \t]*$"
"""What belongs to the secret's own text."""
_VARIES = r"\d+|(?<![A-Za-z])[A-Z]{4,8}(?![A-Za-z])"
"""What differs from line to line: numbers, and levels (INFO, WARNING)."""


def without_prefixed(text: str, mask: Callable[[str], str]) -> str:
    """The text with the lines around each such line masked as they are without what stands in front of them."""
    if "\n" not in text:
        return text
    small = text.lower()
    number, at, done = 0, 0, -1
    lines: list[str] = []
    for match in compiled(_ENDS).finditer(small):
        number, at = number + small.count("\n", at, match.start()), match.start()
        lines = lines or text.split("\n")
        if number > done and (prefix := _prefix(lines, number)):
            first, last, starts = _block(lines, number, prefix)
            bodies = "\n".join(line[at:] for line, at in zip(lines[first : last + 1], starts, strict=True))
            if (clean := mask(bodies)) != bodies:
                lines[first : last + 1] = _joined(lines[first : last + 1], starts, clean)
            done = last
    return "\n".join(lines) if lines else text


def _prefix(lines: list[str], number: int) -> str:
    """What stands in front of a line that says that a secret is near; "" where nothing does, or it says nothing."""
    line = lines[number]
    match = compiled(_SAYS).search(line[:4096])
    if match is None:
        return ""
    if (match["begun"] or match["open"]) and not _goes_on(lines, number, match):
        return ""
    before = line[: match.start()]
    bare = compiled(_OPENS).sub("", before).rstrip()
    if not bare.strip("- "):
        return ""
    prefix = before[: len(bare) + before[len(bare) :].startswith((" ", "\t"))]
    if prefix != bare and _fitting(lines, number, bare) > _fitting(lines, number, prefix):
        prefix = bare  # the blank belongs to what is behind it
    with_mark = line[: match.start() + len("- ")]
    if match[0].startswith("- ") and _fitting(lines, number, prefix) == _fitting(lines, number, with_mark) > 0:
        return with_mark  # "INFO - ": no mark of a list
    return prefix


def _goes_on(lines: list[str], number: int, match: re.Match[str]) -> bool:
    """Whether a value that begins on this line may go on in the next: a quote is open, or that line stands deeper."""
    if number + 1 == len(lines):
        return False
    if match["open"]:
        return True
    before = match.string[: match.start()]
    befores = (before, f"{before}- ") if match[0].startswith("- ") else (before,)
    shape = "|".join(f"(?:{_shape(text)})" for text in befores)
    return re.match(rf"(?:{shape})[ \t]{{1,40}}[^\s:=(]{{1,400}}\r?$", lines[number + 1]) is not None


def _fitting(lines: list[str], number: int, prefix: str) -> int:
    """How many of the lines before and behind begin like this."""
    shape = re.compile(_shape(prefix))
    return sum(
        shape.match(line) is not None for line in (*lines[max(0, number - 1) : number], *lines[number + 1 : number + 2])
    )


def _block(lines: list[str], number: int, prefix: str) -> tuple[int, int, list[int]]:
    """First and last line around one that begin alike, and where each goes on behind its prefix."""
    shape = re.compile(_shape(prefix))
    starts = {number: len(prefix)}
    for step in (-1, 1):
        at = number + step
        while 0 <= at < len(lines) and abs(at - number) <= MAX_LINES and (match := shape.match(lines[at])):
            starts[at] = match.end()
            at += step
    first, last = min(starts), max(starts)
    return first, last, [starts[at] for at in range(first, last + 1)]


def _shape(prefix: str) -> str:
    """What the prefixes of the lines around fit; the blank at the end is missing before an empty line."""
    bare = prefix.rstrip()
    parts, at = [], 0
    for match in compiled(_VARIES).finditer(bare):
        parts += [_literal(bare[at : match.start()]), r"\d+" if match[0][0].isdecimal() else "[A-Z]{4,8}"]
        at = match.end()
    blank = prefix[len(bare) :]
    return "".join([*parts, _literal(bare[at:])]) + (f"(?:{re.escape(blank)}|$)" if blank else "")


def _literal(text: str) -> str:
    """The text itself; columns that are filled up with blanks differ in how many."""
    return re.sub(r"(?:\\ )+", " +", re.escape(text)) if text.strip() else (" *" if text else "")


def _joined(lines: list[str], starts: list[int], clean: str) -> Iterator[str]:
    """The lines with what stood in front of them, which is all that is left of some where several became one."""
    bodies = clean.split("\n")
    bodies += [""] * (len(lines) - len(bodies))
    for line, at, body in zip(lines, starts, bodies, strict=True):
        yield line[:at] + body
