"""Where the first lines of a log stand again: a job script that was started once more, writing into the same file."""

from itertools import pairwise

from allready.evidence.log.fronts import without_front
from allready.evidence.log.last_line import without_numbers
from allready.evidence.log.progress import counts
from allready.patterns import compiled

_MAX_OPENING = 12
_MAX_FIRST = 3
"""Of the first lines two that follow each other: the very first may be of what failed before."""

_MIN_SHAPE = 12
_NEAR_LINES = 6
_MAX_FOUND = 256

_WORD = r"(?!(?:DEBUG|INFO|WARN(?:ING)?|ERROR)\b)\b[A-Za-z]{3}|[^\x00-\x7f─-╿]{2}"
"""More than a rule that a logger drew."""


def openings(head: list[str], last: list[str], first_of_last: int) -> tuple[int, ...]:
    """The numbers of the lines in which the log begins and begins again; () where its first lines do not come again.

    `head`: its first lines; `last`: its last ones, of which the first has the number `first_of_last`.  What lies
    between them is not looked at.
    """
    numbered = list(enumerate(head, start=1))
    numbered += [(number, text) for number, text in enumerate(last, start=first_of_last) if number > len(head)]
    shapes = [(number, without_numbers(text).strip()[:120]) for number, text in numbered if text.strip()]
    opening: list[str] = []
    for _, shape in shapes[:_MAX_OPENING]:
        if shape.startswith("Traceback"):
            break
        if (
            len(shape) >= _MIN_SHAPE
            and compiled(_WORD).search(without_front(shape)) is not None
            and shape not in opening
        ):
            opening.append(shape)
    texts = dict(numbered)
    found = (_places(shapes, first, second) for first, second in pairwise(opening[:_MAX_FIRST]))
    return next((one for one in found if one and not _counts_on([texts[number] for number in one])), ())


def _places(shapes: list[tuple[int, str]], first: str, second: str) -> tuple[int, ...]:
    """Where the first of two lines stands with the second near behind it; () where that is so once only, or all the
    time."""
    places = [at for at, (_, shape) in enumerate(shapes) if shape == first]
    found = tuple(
        shapes[at][0]
        for at in places
        if any(shape == second for _, shape in shapes[at + 1 : at + 1 + _NEAR_LINES]) or at == len(shapes) - 1
    )
    return found if 1 < len(found) <= _MAX_FOUND else ()


def _counts_on(lines: list[str]) -> bool:
    """Whether the first line counts, and each later one like it counts further: those of a loop, which a run that was
    started once more would begin anew."""
    numbers = [[one.done for one in counts(0, text) if one.is_outer][:1] for text in lines]
    return all(numbers) and all(a < b for a, b in pairwise(numbers))
