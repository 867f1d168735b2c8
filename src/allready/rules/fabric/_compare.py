"""One value per rank, and the minority that differs."""

from collections import Counter
from collections.abc import Mapping


def odd_ones(values: Mapping[int, str]) -> tuple[str, tuple[int, ...]] | None:
    """The usual value and the ranks that differ from it; no ranks on a tie; None when all are equal."""
    counts = Counter(values.values()).most_common()
    if len(counts) < 2:
        return None
    usual = counts[0][0]
    if counts[0][1] == counts[1][1]:
        return usual, ()
    return usual, tuple(sorted(r for r, v in values.items() if v != usual))
