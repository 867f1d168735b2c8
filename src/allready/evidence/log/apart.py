"""Of several writers in one log, the one whose count of steps stopped while another's went on to its end."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from allready.evidence.lines.model import Mark
from allready.evidence.lines.operations import tag_of, writer
from allready.evidence.log.progress import LineCount

_MIN_STEPS = 5
"""Counts of one writer; with fewer it does not tell its course."""

_NEARLY = 0.05
_MAX_WRITERS = 4_096


class Course(NamedTuple):
    """The last count of one writer, and in which line."""

    line: int
    done: int
    total: int


def left_behind(
    readings: Sequence[LineCount], lines: Sequence[str], first_line: int, marks: Sequence[Mark]
) -> Course | None:
    """The writer that stopped the earliest, where it had counted like the others; None where no process did.

    `readings`: the counts of the last lines, the first of which has the number `first_line`; `marks`: of the whole log.
    """
    totals = {one.label: one.total for one in readings if one.total is not None and not one.is_minor}
    tags: dict[int, str | None] = {}
    for label, total in totals.items():
        counts = [one for one in readings if one.label == label and one.total == total]
        if total is None or len(counts) < 2 * _MIN_STEPS:
            continue
        steps = ((_tag(tags, lines, one.at), one.done, one.at + first_line) for one in counts)
        found = _slowest(steps, total)
        if found is not None:
            return found
    most = max((mark.iteration for mark in marks), default=0)
    return _slowest(((mark.tag, mark.iteration, mark.number) for mark in marks), most)


def _tag(tags: dict[int, str | None], lines: Sequence[str], at: int) -> str | None:
    """Who wrote a line: by its rank, task or process in the prefix."""
    if at not in tags:
        who = writer(lines[at].encode())
        tag = tag_of(who)
        tags[at] = tag if who.pid is None else f"{tag}:{who.pid}"
    return tags[at]


def _slowest(steps: Iterable[tuple[str | None, int, int]], total: int) -> Course | None:
    """`steps`: writer, count and line of each, in order."""
    courses: dict[str, list[tuple[int, int]]] = {}
    for tag, done, number in steps:
        if tag is not None and (tag in courses or len(courses) < _MAX_WRITERS):
            courses.setdefault(tag, []).append((done, number))
    if len(courses) < 2:
        return None
    ends = {tag: max(done for done, _ in course) for tag, course in courses.items()}
    longest = max(courses, key=lambda tag: (ends[tag], len(courses[tag])))
    slow = [
        tag
        for tag, course in courses.items()
        if len(course) >= _MIN_STEPS
        and ends[tag] + max(_stride(course), _stride(courses[longest])) + _NEARLY * ends[longest] < ends[longest]
        # one that counts the first steps only, or every hundredth one, is no measure
        and 2 * len(course) >= sum(done <= ends[tag] for done, _ in courses[longest])
    ]
    if not slow:
        return None
    tag = min(slow, key=ends.__getitem__)
    done, number = max(courses[tag])
    return Course(number, done, max(total, ends[longest]))


def _stride(course: Sequence[tuple[int, int]]) -> int:
    """How far the counts of one writer lie apart."""
    numbers = sorted({done for done, _ in course})
    return (numbers[-1] - numbers[0]) // (len(numbers) - 1) if len(numbers) > 1 else 0
