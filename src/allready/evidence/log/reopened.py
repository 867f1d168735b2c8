"""Where the first lines of a log stand again: a job script that was started once more, writing into the same file."""

import re
from itertools import pairwise

from allready.evidence.log.fronts import without_front
from allready.evidence.log.progress import counts

_MAX_OPENING = 12
_MIN_OPENING = 2
_MIN_SHAPE = 12
_NEAR_LINES = 6
_MAX_FOUND = 256

_DIGITS = re.compile(r"\d+")
_WORD = re.compile(r"(?!(?:DEBUG|INFO|WARN(?:ING)?|ERROR)\b)\b[A-Za-z]{3}|[^\x00-\x7f─-╿]{2}")
"""More than a rule that a logger drew."""


def openings(head: list[str], last: list[str], first_of_last: int) -> tuple[int, ...]:
    """The numbers of the lines in which the log begins and begins again; () where its first lines do not come again.

    `head`: its first lines; `last`: its last ones, of which the first has the number `first_of_last`.  What lies
    between them is not looked at.
    """
    numbered = list(enumerate(head, start=1))
    numbered += [(number, text) for number, text in enumerate(last, start=first_of_last) if number > len(head)]
    shapes = [(number, _DIGITS.sub("0", text).strip()[:120]) for number, text in numbered if text.strip()]
    opening: list[str] = []
    for _, shape in shapes[:_MAX_OPENING]:
        if shape.startswith("Traceback"):
            break
        if len(shape) >= _MIN_SHAPE and _WORD.search(without_front(shape)) is not None and shape not in opening:
            opening.append(shape)
    if len(opening) < _MIN_OPENING:
        return ()
    first, second = opening[:2]
    places = [at for at, (_, shape) in enumerate(shapes) if shape == first]
    found = tuple(
        shapes[at][0]
        for at in places
        if any(shape == second for _, shape in shapes[at + 1 : at + 1 + _NEAR_LINES]) or at == len(shapes) - 1
    )
    texts = dict(numbered)
    return found if 1 < len(found) <= _MAX_FOUND and not _counts_on([texts[number] for number in found]) else ()


def _counts_on(lines: list[str]) -> bool:
    """Whether the first line counts, and each later one like it counts further: those of a loop, which a run that was
    started once more would begin anew."""
    numbers = [[one.done for one in counts(0, text) if one.is_outer][:1] for text in lines]
    return all(numbers) and all(a < b for a, b in pairwise(numbers))
