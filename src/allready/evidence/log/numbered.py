"""Rows that are numbered up to as many things as the log announces: `Number of Bins: 128`, `Bin 0` to `Bin 127`."""

import re
from collections.abc import Sequence
from itertools import islice, pairwise

from allready.evidence.log.announced import AnnouncedSteps
from allready.evidence.log.progress import is_minor
from allready.patterns import compiled

_ANNOUNCED = (
    r"(?i)\b(?:number of|num|total) (?P<thing>[a-z]{3,20}?)(?:es|s)?(?: \([a-z ]{1,20}\))?\s{0,4}[:=]\s{0,4}"
    r"(?P<total>\d{1,9})\b(?![.,:/]\d)"
)
_MIN_ROWS = 8
_MAX_THINGS = 16
"""A log that announces more is a list of settings."""


def rows(lines: Sequence[str], earlier: Sequence[str]) -> AnnouncedSteps | None:
    """The last row of all that were announced; None where it is not there with all that the one before it has.

    `earlier`: as much as is kept of the log before the last lines.  Of rows in between some may not be kept.
    """
    kept = (*earlier, *lines)
    announced = ((at, match) for at, text in enumerate(kept) for match in compiled(_ANNOUNCED).finditer(text))
    for at, match in islice(announced, _MAX_THINGS):
        total = int(match["total"])
        found = [] if is_minor(match["thing"]) else _rows(kept, at + 1, match["thing"])
        first, last = (found[0][1], found[-1][1]) if len(found) >= _MIN_ROWS else (-1, -1)
        is_all = (first, last) in {(0, total - 1), (1, total)} and all(a < b for (_, a), (_, b) in pairwise(found))
        if not is_all:
            continue
        before, place = found[-2][0], found[-1][0]
        if place >= len(earlier) and _num_said(kept[place:]) >= _num_said(kept[before:place]):
            return AnnouncedSteps(place - len(earlier), total, total, is_full=True)
    return None


def _rows(kept: Sequence[str], first: int, thing: str) -> list[tuple[int, int]]:
    """The places and numbers of the lines that begin with the thing and its number."""
    row = re.compile(rf"\W{{0,8}}{re.escape(thing)} {{0,2}}[#:]? {{0,2}}(?P<number>\d{{1,9}})\b", re.IGNORECASE)
    found = ((at, row.match(kept[at])) for at in range(first, len(kept)))
    return [(at, int(match["number"])) for at, match in found if match is not None]


def _num_said(lines: Sequence[str]) -> int:
    return sum(bool(line.strip()) for line in lines)
