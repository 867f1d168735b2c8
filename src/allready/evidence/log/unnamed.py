"""Counts that no word names: `[991][991/1000] | loss: ...` counts, since it goes up to its total from line to line."""

from collections.abc import Sequence
from itertools import pairwise

from allready.evidence.log.announced import AnnouncedSteps
from allready.evidence.log.fronts import without_front
from allready.evidence.log.left_loop import LETTERS, training_lines
from allready.evidence.log.progress import is_minor
from allready.patterns import compiled

_COUNT = r"(?<![\w./:,-])(?P<done>\d{1,9})\s?/\s?(?P<total>\d{1,9})(?![\w/:-]|[.,]\d)"
_MAX_CHARS = 120
_MIN_NUMBERS = 8
_MOST = 0.5

_Course = list[tuple[int, int]]


def steps(lines: Sequence[str], earlier: Sequence[str]) -> AnnouncedSteps | None:
    """The count of the last lines that goes up without a break, of a training or of most of what the log holds; None
    where there is none, where it began again before or where several do.

    `earlier`: as much as is kept of the log before these lines.
    """
    own = [(at, course[-1][1], total) for (_, total), course in _courses(lines).items() if (at := _end_of(course)) >= 0]
    if len(own) != 1:
        return None
    at, done, total = own[0]
    all_lines = (*earlier, *lines)
    course = next(one for (_, other), one in _courses(all_lines).items() if other == total and one[-1][1] == done)
    if _end_of(course) < 0:
        return None
    places = {place for place, _ in course}
    of_training = set(training_lines(all_lines))
    said = [place for place, text in enumerate(all_lines) if compiled(LETTERS).search(text) is not None]
    is_of_training = len(places & of_training) > _MOST * len(places)
    is_work = is_of_training or (not of_training and len(places) > _MOST * len(said))
    return AnnouncedSteps(at, done, total, is_full=done == total) if is_work else None


def _courses(lines: Sequence[str]) -> dict[tuple[str, int], _Course]:
    """The places and numbers of what may be a count, by the words in front of it and its total."""
    found: dict[tuple[str, int], _Course] = {}
    numbers: dict[tuple[str, int], list[list[str]]] = {}
    for at, text in enumerate(lines):
        match = compiled(_COUNT).search(text[:_MAX_CHARS]) if "/" in text else None
        if match is None or is_minor(text[: match.start()]):
            continue
        before = without_front(text[: match.start()])
        key = compiled(r"\d+").sub("0", before).strip(), int(match["total"])
        found.setdefault(key, []).append((at, int(match["done"])))
        numbers.setdefault(key, []).append(compiled(r"\d+").findall(before))
    return {key: course for key, course in found.items() if not _is_within(numbers[key])}


def _is_within(numbers: Sequence[Sequence[str]]) -> bool:
    """Whether one number in front stays the same, as that of an epoch does: `[0][99/100]`."""
    return any(len(set(column)) == 1 for column in zip(*numbers, strict=True))


def _end_of(course: _Course) -> int:
    """The place of its last count; -1 where these do not go up, from line to line."""
    is_rising = all(a <= b for (_, a), (_, b) in pairwise(course))
    return course[-1][0] if is_rising and len({done for _, done in course}) >= _MIN_NUMBERS else -1
