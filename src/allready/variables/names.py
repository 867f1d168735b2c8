"""Names that are nearly right."""

import functools
from collections import Counter

from allready.variables import table

MAX_NAME_CHARS = 80


def nearest(name: str, *, most: int = 3) -> list[str]:
    """Known names that `name` may be a slip of the pen for, the likeliest first; [] when none is near.

    A slip is another case, another order of the words, or one or two wrong, missing, doubled or swapped letters.
    """
    if not 4 <= len(name) <= MAX_NAME_CHARS:
        return []
    upper = name if name.startswith("--") else name.upper()  # flags are in small letters
    known = _by_words()
    if upper != name and upper in table.load():
        return [upper]
    if same := known.get(_words(upper)):
        return sorted(same)[:most]
    limit = 1 if len(name) < 12 else 2
    letters = Counter(upper)
    found: list[tuple[int, bool, str]] = []
    for other in table.load():
        if abs(len(other) - len(upper)) > limit or _far(letters, other, limit):
            continue
        distance = _distance(upper, other, limit)
        if distance is not None:
            found.append((distance, table.load()[other].is_folk, other))
    return [other for _, _, other in sorted(found)[:most]]


def family(name: str) -> str:
    """`NCCL` of NCCL_DEBUG."""
    return name.partition("_")[0]


FAMILIES = frozenset({"NCCL", "GLOO", "TORCHELASTIC"})
"""First words of names that belong to one library alone: an unknown name that begins so has no effect."""


@functools.cache
def _by_words() -> dict[frozenset[str], list[str]]:
    grouped: dict[frozenset[str], list[str]] = {}
    for name in table.load():
        grouped.setdefault(_words(name), []).append(name)
    return grouped


def _words(name: str) -> frozenset[str]:
    return frozenset(name.split("_"))


def _far(letters: Counter[str], other: str, limit: int) -> bool:
    theirs = Counter(other)
    return max(sum((letters - theirs).values()), sum((theirs - letters).values())) > limit


def _distance(one: str, other: str, limit: int) -> int | None:
    """Insertions, deletions, replacements and swaps of neighbours; None when there are more than `limit`."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, letter in enumerate(one, start=1):
        row = [i]
        for j, theirs in enumerate(other, start=1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != theirs))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == theirs:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return None
        before, last = last, row
    return last[-1] if last[-1] <= limit else None
