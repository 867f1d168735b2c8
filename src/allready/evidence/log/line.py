"""One line of a log, ready to be read: decoded, its prefix off."""

import re
from collections.abc import Sequence

from msgspec import Struct

from allready.evidence.prefix import Prefix
from allready.patterns import compiled

MAX_CHARACTERS = 4096
MAX_EVENT_TEXT = 1000
_UNCLEAN = (b"\r", b"\x1b", b"\0")
_ESCAPES = r"\x1b(?:\[[0-?]{0,40}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)?|[@-Z\\^_])"


class Line(Struct):
    """`number` from 1.  `is_known`: the scanner or the caller gave it for its own sake, not as another's follower.

    `time_s`: by the process's own clock, else by its launcher's or container's, brought to the same zone.
    """

    number: int
    text: str
    prefix: Prefix
    is_known: bool = True
    is_understood: bool = False
    time_s: float | None = None

    @property
    def rest(self) -> str:
        return self.prefix.rest

    def continues(self, opener: "Line") -> bool:
        """Whether this may be a later line of what `opener` began: same stream, same rank, no prefix of its own."""
        mine, its = self.prefix, opener.prefix
        return (
            mine.writer == its.writer
            and (mine.rank is None or its.rank is None or mine.rank == its.rank)
            and mine.kind in ("", its.kind if its.kind in ("syslog", "kernel") else "")
        )


_GB = rb"(?:[\x00-\x7f]|[\xa1-\xf7][\xa1-\xfe])+"
"""GB 2312, in which a console of Windows writes Chinese: letters of Latin-1 hardly ever stand in pairs."""


def text_of(raw: bytes) -> str:
    """The text, of a line in UTF-8 or else in GB 2312."""
    text = raw.decode("utf-8", "replace")
    if "\ufffd" not in text:
        return text
    if b"\n" in raw:
        return "\n".join(map(text_of, raw.split(b"\n")))
    return raw.decode("gb18030", "replace") if _is_gb(raw.rstrip(b"\r")) else text


def _is_gb(raw: bytes) -> bool:
    return any(re.fullmatch(_GB, one) is not None for one in (raw, raw[:-1]))  # it may have been cut


def decode_all(raw: Sequence[bytes]) -> list[str]:
    """The lines as text, see `decode`: at once where none needs more than decoding."""
    whole = b"\n".join(raw)
    if any(mark in whole for mark in _UNCLEAN) or any(len(text) > MAX_CHARACTERS for text in raw):
        return [decode(text) for text in raw]
    texts = text_of(whole).split("\n")
    return texts if len(texts) == len(raw) else [decode(text) for text in raw]


def decode(raw: bytes) -> str:
    """The line as text, without its end, colours and NULs."""
    text = text_of(raw[:MAX_CHARACTERS]).rstrip("\r\n")
    if "\x1b" in text:
        text = compiled(_ESCAPES).sub("", text)
    if "\r" in text:  # a progress bar overwrote itself: what stayed on the screen
        text = next((part for part in reversed(text.split("\r")) if part.strip()), "")
    return text.replace("\x00", "") if "\x00" in text else text
