"""A line of a program and the function that it is in."""

from typing import Self

from msgspec import Struct


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
        """The parts of the text of one; a path may have blanks, a function `f.<locals>.g` has none."""
        place, blank, function = text.rpartition(" ")
        if not blank:
            place, function = text, ""
        file, colon, line = place.rpartition(":")
        if not (colon and line.isdecimal()):
            return cls(place, None, function)
        return cls(file, int(line), function)

    @classmethod
    def known(cls, text: str) -> Self | None:
        """The same; None of an empty text."""
        return cls.of(text) if text else None
