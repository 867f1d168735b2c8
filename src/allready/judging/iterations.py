"""Operations by iteration, where markers of iterations stand among the operations."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from allready.evidence.operations.codes import raw_codes
from allready.evidence.reading import OpStream
from allready.judging.majority import majority
from allready.model import Iterations

MAX_ODD = 50
"""Odd iterations kept of one rank, the first ones."""

Counts = tuple[tuple[str, int], ...]


def count_iterations(streams: Mapping[int, Sequence[OpStream]], marker: str = "iteration") -> Iterations | None:
    """Usual and odd iterations; None when there are no markers.

    An iteration is odd on a rank if most ranks made other operations in the same one, or, where only one rank has
    markers, if no other iteration looks like it.  A rank's last iteration may be cut off and is not judged.
    """
    by_rank = {rank: found for rank, items in sorted(streams.items()) if (found := _of_rank(items))}
    if not by_rank:
        return None
    usual = Counter(counts for found in by_rank.values() for counts in found.values())
    odd: dict[int, dict[int, dict[str, int]]] = {}
    for iteration in sorted({i for found in by_rank.values() for i in found}):
        present = {rank: found[iteration] for rank, found in by_rank.items() if iteration in found}
        for rank in _odd_ranks(present, usual, alone=len(by_rank) == 1):
            kept = odd.setdefault(rank, {})
            if len(kept) < MAX_ODD:
                kept[iteration] = dict(present[rank])
    marks = {rank: sorted({i for s in items for i in s.marks}) for rank, items in streams.items()}
    return Iterations(
        marker=marker,
        num_iterations={rank: m[-1] - m[0] + 1 for rank, m in sorted(marks.items()) if m},
        usual=dict(usual.most_common(1)[0][0]),
        odd=odd,
    )


def _odd_ranks(present: Mapping[int, Counts], usual: Counter[Counts], *, alone: bool) -> list[int]:
    if alone:
        return [rank for rank, counts in present.items() if usual[counts] == 1 and usual.total() > 2]
    found = majority(present)
    return list(found.odd) if found is not None else []


def _of_rank(streams: Sequence[OpStream]) -> dict[int, Counts]:
    """Iteration -> operations of the whole process, for iterations that both markers of are there."""
    totals: dict[int, Counter[str]] = {}
    for stream in streams:
        for iteration, counts in _of_stream(stream).items():
            totals.setdefault(iteration, Counter()).update(counts)
    return {iteration: tuple(sorted(counts.items())) for iteration, counts in totals.items()}


def _of_stream(stream: OpStream) -> dict[int, Counter[str]]:
    marks = sorted(stream.marks.items())
    if len(marks) < 2 or any(a[1] > b[1] for a, b in pairwise(marks)):
        return {}
    names = sorted({s.name for s in stream.shapes})
    name_of = np.array([names.index(s.name) for s in stream.shapes], dtype=np.int64)
    borders = np.array([place for _, place in marks], dtype=np.int64)
    table = np.zeros((len(marks) + 1) * max(1, len(names)), dtype=np.int64)
    at = 0
    for codes in raw_codes(stream):
        codes = codes[codes < len(name_of)]
        # Segment 0 is before the first marker; segment k follows marker k - 1.
        segments = np.searchsorted(borders, np.arange(at, at + len(codes)), side="right")
        table += np.bincount(segments * len(names) + name_of[codes], minlength=len(table))
        at += len(codes)
    found: dict[int, Counter[str]] = {}
    for k, (iteration, _) in enumerate(marks[:-1]):
        if marks[k + 1][0] == iteration + 1:
            row = table[(k + 1) * len(names) : (k + 2) * len(names)].tolist()
            found[iteration] = Counter({name: n for name, n in zip(names, row, strict=True) if n})
    return found
