"""Steps that are counted without a total, against the number that the program announced when it began."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from allready.patterns import compiled

_KINDS = {"step": "step", "iter": "iter", "upda": "update", "roun": "round"}
_TOTAL = (
    r"(?i)(?:\b(?:max|total|num(?:ber)?(?:[_ -]of)?|train(?:ing)?|optimi[sz]ation)[_ -]{1,2}"
    r"(?:(?:train(?:ing)?|optimi[sz]ation|global|number of)[_ -])?"
    r"(?P<kind>steps?|iter(?:ation)?s?|updates?|rounds?)\b['\"]?\s{0,4}(?:[:=]|\.{2,60}|\s)|"
    r"(?:^|--|\bparam |[{(,\"'])\s{0,2}(?P<bare>steps|iter(?:ation)?s|updates|rounds)\b['\"]?\s{0,4}[:=])"
    r"\s{0,8}['\"]?(?P<total>\d[\d,]{0,14})\b(?![.:]\d|\s{0,2}[/%-])"
)
_STEP = (
    r"(?i)(?:^|[\s|\[(,{\"'>])(?:completed |global[_ ]?|train(?:ing)?[_ ]?)?"
    r"(?P<kind>steps?|iter(?:ation)?s?|updates?|rounds?)['\"]?[\])]?"
    r"(?:\s{0,3}[:=#]\s{0,8}|\s{1,8})\[?(?P<done>\d{1,12})\b(?!\s{0,4}(?:/|of\b)|[.:]\d|%|[-\w])"
)
_MAY_COUNT = r"(?i)(?:step|iter|update|round)[a-z\])'\"]{0,8}\s?[\s:=#]"
_MIN_COUNTS = 3


class AnnouncedSteps(NamedTuple):
    """How far a count came.  `at`: the place of its last line; `is_full`: no further line of it was to come."""

    at: int
    done: int
    total: int
    is_full: bool


def steps(lines: Sequence[str], head: str) -> AnnouncedSteps | None:
    """The count of the last lines whose end the beginning announces; None where no single number is announced."""
    first: dict[str, int] = {}
    for text in head.splitlines():
        for kind, done in _counts(text):
            first.setdefault(kind, done)
    seen = counted(lines)
    totals = _totals(head)
    found = [
        made
        for kind, course in seen.items()
        if len(totals.get(kind, ())) == 1
        and (made := _steps(course, first.get(kind, course[0][1]), next(iter(totals[kind])))) is not None
    ]
    return max(found, key=lambda one: (one.is_full, one.at), default=None)


def counted(lines: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
    """What is counted without a total, by kind: place and number."""
    seen: dict[str, list[tuple[int, int]]] = {}
    for at, text in enumerate(lines):
        for kind, done in _counts(text):
            seen.setdefault(kind, []).append((at, done))
    return seen


def _steps(course: Sequence[tuple[int, int]], first: int, total: int) -> AnnouncedSteps | None:
    """What one count says; None where it is not one that goes up to this total."""
    numbers = sorted({done for _, done in course} | {first})
    last_at, last = course[-1]
    if len(numbers) < _MIN_COUNTS or last != numbers[-1] or last > total:
        return None
    stride = last - numbers[-2]
    num = total if first else total - 1  # from 0 the last of 20 is 19
    return AnnouncedSteps(last_at, last, total, is_full=last >= num or last + stride > num)


def _totals(head: str) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for text in head.splitlines():
        for match in compiled(_TOTAL).finditer(text):
            total = int(match["total"].replace(",", ""))
            if total > 1:
                found.setdefault(_KINDS[(match["kind"] or match["bare"])[:4].lower()], set()).add(total)
    return found


def _counts(text: str) -> Iterable[tuple[str, int]]:
    if compiled(_MAY_COUNT).search(text) is None:
        return
    if (match := compiled(_STEP).search(text)) is not None and compiled(_TOTAL).search(text) is None:
        yield _KINDS[match["kind"][:4].lower()], int(match["done"])
