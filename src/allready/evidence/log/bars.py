"""How long bars took: the one that ran about as long as the whole program holds the others."""

import re
from collections.abc import Sequence
from itertools import chain

_TIMED = re.compile(
    r"(?P<label>.{0,120}?)(?P<percent>\d{1,3})%(?:\|[^|]{0,300}\|)?\s{0,8}(?P<done>\d{1,12})/(?P<total>\d{1,12}) "
    r"\[(?P<elapsed>[\d:]{4,12})<"
)
_MUCH = 3
_SAME = 1.05


def is_outermost(lines: Sequence[str], at: int, head: str) -> bool:
    """Whether the bar in `lines[at]` has come to its end once, and took much longer than each other one."""
    mine = _TIMED.match(lines[at])
    if mine is None:
        return False
    took = _seconds(mine["elapsed"])
    for text in chain(head.replace("\r", "\n").splitlines(), lines[:at]):
        other = _TIMED.match(text) if "%" in text else None
        if other is None:
            continue
        is_same = (other["label"].strip(), other["total"]) == (mine["label"].strip(), mine["total"])
        elapsed = _seconds(other["elapsed"])
        if is_same and other["done"] == other["total"] and _SAME * elapsed < took:
            return False
        if is_same and elapsed > took:
            return False
        if not is_same and _MUCH * elapsed > took:
            return False
    return took > 0


def _seconds(clock: str) -> int:
    parts = [int(part) for part in clock.split(":") if part]
    return sum(part * 60**place for place, part in enumerate(reversed(parts)))
