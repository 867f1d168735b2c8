"""The learning rate, where it runs down to nothing at the end of its schedule: it was made for so many steps."""

import re
from collections.abc import Iterable, Sequence

_RATE = re.compile(
    r"(?:\b|_)(?:lr|learning[_ ]rate)\b['\"]?\s{0,3}[:=]?\s{0,4}[\[(]?['\"]?"
    r"(?P<rate>\d{1,4}(?:\.\d{1,20})?(?:e-?\d{1,3})?)\b",
    re.IGNORECASE,
)
_OF_A_TRAINER = re.compile(r".{0,40}?\{'\w{1,40}': .{0,400}'learning_rate': .{0,200}'epoch': ")
"""Hugging Face's records of steps: its trainer has a last word of its own, which lacks where it did not end."""

_MIN_SEEN = 8
_LITTLE = 1e-3
_LAST = 4


def runs_out(lines: Sequence[str], head: str) -> int | None:
    """The place of the last line that gives the rate, where no further step was to come; None where that is not plain.

    A rate that falls in a line or along a cosine falls faster and faster in proportion, and its next value would be
    below nothing.  One that falls by the same factor goes on; so does one that rose again, in another cycle.
    """
    told = [(at, rate) for at, text in enumerate(lines) if (rate := _rate(text)) is not None]
    if told and _OF_A_TRAINER.match(lines[told[-1][0]]) is not None:
        return None
    course = _changes(rate for _, rate in told)
    before = _changes(rate for text in head.splitlines() if (rate := _rate(text)) is not None)
    if len(course) < _MIN_SEEN:
        return None
    top = course.index(max(course))
    fall = course[top:]
    a, b, c, d = course[-_LAST:]
    if (
        len(fall) <= _LAST
        or sorted(course[: top + 1]) != course[: top + 1]
        or sorted(fall, reverse=True) != fall
        or d > _LITTLE * max((*before, *course))
        or _num(told, d) > _num(told, c) + 1  # it stays there
    ):
        return None
    return told[-1][0] if b / a > c / b > d / c and 2 * d <= c else None


def _num(told: Sequence[tuple[int, float]], rate: float) -> int:
    return sum(value == rate for _, value in told)


def _changes(rates: Iterable[float]) -> list[float]:
    """The values one after the other, each once where it is said several times: by several ranks, or on a plateau."""
    found: list[float] = []
    for rate in rates:
        if not found or found[-1] != rate:
            found.append(rate)
    return found


def _rate(text: str) -> float | None:
    match = _RATE.search(text) if "lr" in text or "LR" in text or "earning" in text else None
    return float(match["rate"]) if match is not None else None
