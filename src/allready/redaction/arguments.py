"""Secrets of a command that is written as the list of its arguments: `["redis-cli", "-a", "x"]`, `- --password`, `- x`.

What such a command takes as a secret is known by how it looks in one line, so it is looked at in one.
"""

import re
from collections.abc import Callable

from allready.patterns import compiled

HINTS = ('"-', "'-", "- -")
"""A text without any has no list in which an option stands."""
_ITEM = r"(?:\"[^\"\\\n]{0,400}\"|'[^'\\\n]{0,400}')"
_INLINE = rf"\[\s{{0,40}}{_ITEM}(?:,\s{{0,40}}{_ITEM}){{1,80}},?\s{{0,40}}\]"
_BLOCK = r"(?m)^(?P<indent>[ \t]{0,80})- [^\n]{1,400}(?:\n(?P=indent)- [^\n]{1,400}){1,80}"
_OPTION = (
    r"(?m)(?:[\[,][ \t\r\n]{0,40}[\"']|^[ \t]{0,80}- [\"']?)-(?:[A-Za-z]{1,2}[\"'\s]"
    r"|[\w-]{0,40}(?:pass|token(?!s)|secret|key|auth|user|cookie|literal|value|header))"
)
"""One that may have a secret behind it: a short one, which means something else to each program, or one called so."""
_IN_BLOCK = r"(?m)(?<=- )(?:\"[^\"\n]{1,400}\"|'[^'\n]{1,400}'|[^\s\"'#][^\n]{0,400}?)(?=[ \t]*(?:#[^\n]{0,400})?\r?$)"
_BLANK = "\x1f"
"""Stands for white space within an argument, so that a blank is only between two."""


def without_arguments(text: str, mask: Callable[[str], str]) -> str:
    """The text with such lists as `mask` leaves their commands."""
    if '"-' in text or "'-" in text:
        text = compiled(_INLINE).sub(lambda match: _clean(match[0], _ITEM, mask), text)
    if "- -" in text or '- "-' in text or "- '-" in text:
        text = compiled(_BLOCK).sub(lambda match: _clean(match[0], _IN_BLOCK, mask), text)
    return text


def _clean(listed: str, item: str, mask: Callable[[str], str]) -> str:
    if compiled(_OPTION).search(listed) is None:
        return listed
    found = list(compiled(item).finditer(listed))
    words = [re.sub(r"\s", _BLANK, _bare(match[0])) or _BLANK for match in found]
    clean = mask(" ".join(words)).split(" ")
    if len(clean) != len(words):
        return listed
    parts, done = [], 0
    for match, word, new in zip(found, words, clean, strict=True):
        if word != new:
            quote = match[0][0] if match[0][0] in "\"'" else ""
            parts += [listed[done : match.start()], quote, new.strip("\"'").replace(_BLANK, " "), quote]
            done = match.end()
    return "".join([*parts, listed[done:]])


def _bare(item: str) -> str:
    return item[1:-1] if item[:1] in {'"', "'"} and item[-1:] == item[:1] and len(item) > 1 else item
