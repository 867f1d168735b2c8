"""How the members of a fleet divide over the values of one fact."""

from collections.abc import Iterable, Mapping
from typing import Self

from msgspec import Struct


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


class Split(Struct, frozen=True):
    """Groups of members (node ranks or ranks) that have the same value, largest group first."""

    groups: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def by(cls, values: Mapping[int, object]) -> Self:
        """Group the members of `values` by `str` of their value; order: size of the group, then smallest member."""
        members: dict[str, list[int]] = {}
        for member, value in values.items():
            members.setdefault(str(value), []).append(member)
        groups = sorted(((v, tuple(sorted(m))) for v, m in members.items()), key=lambda g: (-len(g[1]), g[1]))
        return cls(tuple(groups))

    def __len__(self) -> int:
        return len(self.groups)

    def __str__(self) -> str:
        """`9000 [0,1,3], 1500 [2]`: neutral in language."""
        return ", ".join(f"{value or '(empty)'} [{ranges(members)}]" for value, members in self.groups)

    def outliers(self) -> tuple[int, ...]:
        """Members outside the majority; empty unless more than half of all members share one value."""
        total = sum(len(members) for _, members in self.groups)
        if len(self.groups) < 2 or 2 * len(self.groups[0][1]) <= total:
            return ()
        return tuple(sorted(m for _, members in self.groups[1:] for m in members))
