"""How long bars took: the one that ran about as long as the whole program holds the others."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from allready.patterns import compiled

_TIMED = (
    r"(?P<label>.{0,120}?)(?P<percent>\d{1,3})%(?:\|[^|]{0,300}\|)?\s{0,8}(?P<done>\d{1,12})/(?P<total>\d{1,12}) "
    r"\[(?P<elapsed>[\d:]{4,12})<"
)
PERCENT = (
    r"(?P<label>.{0,120}?)(?<!\d)(?P<percent>\d{1,3})%\|[^|]{0,300}\|\s{1,8}"
    r"(?:ETA: |Time: (?P<elapsed>(?:\d{1,4} days, )?[\d:]{4,12}))"
)
"""Julia's: it says how much is left, and at its end how long it took."""

_MUCH = 3
_SAME = 1.05
_HOURS_A_DAY = 24


class _Bar(NamedTuple):
    name: tuple[str, str]
    is_full: bool
    took_s: int


def is_outermost(lines: Sequence[str], at: int, head: str) -> bool:
    """Whether the bar in `lines[at]` has come to its end once, and took much longer than each other one."""
    mine = _bar(lines[at])
    if mine is None:
        return False
    for text in chain(head.replace("\r", "\n").splitlines(), lines[:at]):
        other = _bar(text) if "%" in text else None
        if other is None:
            continue
        if other.name != mine.name:
            if _MUCH * other.took_s > mine.took_s:
                return False
        elif other.took_s > mine.took_s or (other.is_full and _SAME * other.took_s < mine.took_s):
            return False
    return mine.took_s > 0


def _bar(text: str) -> _Bar | None:
    match = compiled(_TIMED).match(text)
    if match is not None:
        return _Bar(
            (match["label"].strip(), match["total"]), match["done"] == match["total"], _seconds(match["elapsed"])
        )
    match = compiled(PERCENT).match(text)
    if match is None or match["elapsed"] is None:
        return None
    return _Bar((match["label"].strip(), "%"), True, _seconds(match["elapsed"]))


def _seconds(clock: str) -> int:
    days, _, of_day = clock.rpartition(" days, ")
    parts = [int(part) for part in of_day.split(":") if part]
    within = sum(part * 60**place for place, part in enumerate(reversed(parts)))
    return int(int(days or 0) * _HOURS_A_DAY * 3600 + within)
