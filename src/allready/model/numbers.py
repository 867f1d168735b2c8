"""Numbers written compactly."""

from collections.abc import Iterable


def runs_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of each run of numbers that follow one another."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return runs


def ranges(numbers: Iterable[int]) -> str:
    """Write sorted numbers compactly: 0,1,2,5 becomes "0-2,5"."""
    return ",".join(map(_span, runs_of(numbers)))


def _span(run: tuple[int, int]) -> str:
    first, last = run
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"
