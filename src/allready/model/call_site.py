"""A line of a program and the function that it is in."""

from typing import Self

from msgspec import Struct

from allready.patterns import compiled

_LINE = r"(?s)(.*):(0|[1-9][0-9]{0,8})(?: (.*))?"
"""Behind a line's number all is the function, which may have blanks: `<cell line: 3>`."""
_FUNCTION = r"(?s)(.*) ([^ /\\]+)"
"""Without a number the last word is, unless it is the rest of a path that has blanks."""


class CallSite(Struct, frozen=True, cache_hash=True):
    """Where a call is.  Its text is `train.py:31 step`, without what is not known.

    Cells, statuses and reports hold that text; code that compares reads it by `of`, or `known`.
    """

    file: str
    line: int | None = None
    function: str = ""

    def __str__(self) -> str:
        line = f":{self.line}" if self.line is not None else ""
        return f"{self.file}{line} {self.function}".rstrip()

    @classmethod
    def of(cls, text: str) -> Self:
        """The parts of the text of one."""
        if found := compiled(_LINE).fullmatch(text):
            return cls(found[1], int(found[2]), found[3] or "")
        found = compiled(_FUNCTION).fullmatch(text)
        return cls(found[1], None, found[2]) if found else cls(text)

    @classmethod
    def known(cls, text: str) -> Self | None:
        """The same; None of an empty text."""
        return cls.of(text) if text else None
