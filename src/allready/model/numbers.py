"""Numbers written compactly."""

from collections.abc import Iterable


def ranges(numbers: Iterable[int]) -> str:
    """Write sorted numbers compactly: 0,1,2,5 becomes "0-2,5"."""
    parts: list[str] = []
    start: int | None = None
    last = 0
    for number in sorted(set(numbers)):
        if start is None:
            start = last = number
        elif number == last + 1:
            last = number
        else:
            parts.append(_span(start, last))
            start = last = number
    if start is not None:
        parts.append(_span(start, last))
    return ",".join(parts)


def _span(start: int, last: int) -> str:
    if start == last:
        return str(start)
    return f"{start},{last}" if last == start + 1 else f"{start}-{last}"
