"""The one vote of this program: which value more than half of all members have, and who differs from them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, Self, TypeVar

import msgspec

from allready.judging.values import grouped
from allready.model import ranges

Value = TypeVar("Value")


class Majority(msgspec.Struct, Generic[Value], frozen=True):
    """What more than half of all members have, the members that have it, and those known to have something else."""

    value: Value
    members: tuple[int, ...]
    odd: tuple[int, ...]


def is_majority(num: int, of: int) -> bool:
    """Whether `num` members are more than half of all."""
    return 2 * num > of


def is_minority(num: int, of: int) -> bool:
    """Whether `num` members are fewer than half of all, so that the others are the majority."""
    return is_majority(of - num, of)


def majority(
    values: Mapping[int, Value], members: Iterable[int] = (), *, num_members: int = 0
) -> Majority[Value] | None:
    """The value of more than half of all members; None where no value has so many, and then no member is odd.

    Args:
        members: all that take part; those without a value may have any.
        num_members: how many take part, where only that is known of some.
    """
    holders = grouped((value, member) for member, value in values.items())
    if not holders:
        return None
    value, same = max(holders.items(), key=lambda item: len(item[1]))
    if not is_majority(len(same), max(num_members, len({*members, *values}))):
        return None
    return Majority(value, tuple(sorted(same)), tuple(sorted(m for m in values if values[m] != value)))


def majority_alike(
    values: Mapping[int, Value], is_same: Callable[[Value, Value], bool], is_other: Callable[[Value, Value], bool]
) -> Majority[Value] | None:
    """The same of values that are measured, and are the same or others only about.

    Args:
        values: of all members.
        is_same: whether two values are equal within what a measurement may err.
        is_other: whether they certainly differ.  None where this is unclear between the majority and some member.
    """
    alike = {m: tuple(other for other in sorted(values) if is_same(values[m], values[other])) for m in values}
    most = max(alike, key=lambda m: len(alike[m]), default=None)
    if most is None or not is_majority(len(alike[most]), len(values)):
        return None
    odd = tuple(m for m in sorted(values) if is_other(values[most], values[m]))
    return Majority(values[most], alike[most], odd) if len(alike[most]) + len(odd) == len(values) else None


def is_tie(values: Mapping[int, Value], members: Iterable[int] = (), *, num_members: int = 0) -> bool:
    """Whether all members have one of two values, and half of them each: then other evidence may decide between both.

    Of three values, or with members whose value is not known, none has to be right.
    """
    groups = grouped((value, member) for member, value in values.items())
    of = max(num_members, len({*members, *values}))
    return len(groups) == 2 and all(2 * len(group) == of for group in groups.values())


class Split(msgspec.Struct, frozen=True):
    """Groups of members (node ranks or ranks) that have the same value, largest group first.

    `num_members`: how many members there are, those without a known value included, where that is known.
    """

    groups: tuple[tuple[str | None, tuple[int, ...]], ...]
    num_members: int = 0

    @classmethod
    def by(cls, values: Mapping[int, object], *, num_members: int = 0) -> Self:
        """Group the members of `values` by `str` of their value; order: size of the group, then smallest member.

        None is a value too: that of a member that has none.
        """
        members = grouped((None if value is None else str(value), member) for member, value in values.items())
        groups = sorted(((v, tuple(sorted(m))) for v, m in members.items()), key=lambda g: (-len(g[1]), g[1]))
        return cls(tuple(groups), num_members)

    def __len__(self) -> int:
        return len(self.groups)

    def __str__(self) -> str:
        """`9000 [0,1,3], 1500 [2]`: neutral in language."""
        return ", ".join(f"{value or '(empty)'} [{ranges(members)}]" for value, members in self.groups)

    def outliers(self) -> tuple[int, ...]:
        """Members outside the majority; empty unless more than half of all members share one value."""
        known = {member: value for value, group in self.groups for member in group}
        found = majority(known, num_members=self.num_members)
        return found.odd if found is not None else ()
