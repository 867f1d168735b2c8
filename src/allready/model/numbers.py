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


def numbers_in(text: str, *, below: int) -> frozenset[int] | None:
    """The numbers of `0,2,5-7`; None where it is no such list, or has a number that is not below `below`."""
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = (word.strip() for word in part.partition("-"))
        first, last = (
            int(n) if n.isascii() and n.isdigit() and len(n) < 10 else -1 for n in (low, high if dash else low)
        )
        if not 0 <= first <= last < below:
            return None
        found.update(range(first, last + 1))
    return frozenset(found)


def cpus_of(text: str) -> frozenset[int]:
    """The CPUs of a list as the kernel writes it; none where it is anything else."""
    return numbers_in(text, below=100_000) or frozenset()


def _span(run: tuple[int, int]) -> str:
    first, last = run
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"
