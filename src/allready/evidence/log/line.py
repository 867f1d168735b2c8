"""One line of a log, ready to be read: decoded, its prefix off."""

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


def decode_all(raw: Sequence[bytes]) -> list[str]:
    """The lines as text, see `decode`: at once where none needs more than decoding."""
    whole = b"\n".join(raw)
    if any(mark in whole for mark in _UNCLEAN) or any(len(text) > MAX_CHARACTERS for text in raw):
        return [decode(text) for text in raw]
    texts = whole.decode("utf-8", "replace").split("\n")
    return texts if len(texts) == len(raw) else [decode(text) for text in raw]


def decode(raw: bytes) -> str:
    """The line as text, without its end, colours and NULs."""
    text = raw[:MAX_CHARACTERS].decode("utf-8", "replace").rstrip("\r\n")
    if "\x1b" in text:
        text = compiled(_ESCAPES).sub("", text)
    if "\r" in text:  # a progress bar overwrote itself: what stayed on the screen
        text = next((part for part in reversed(text.split("\r")) if part.strip()), "")
    return text.replace("\x00", "") if "\x00" in text else text
