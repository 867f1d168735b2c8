"""Calls that ranks gave up by torch's watchdog, compared: other calls under one number."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from allready.evidence.join.watchdog import SPEAKING, TAG
from allready.judging.group_calls import GroupCalls
from allready.judging.sequence import numbered
from allready.model import Event, GroupProgress, Mismatch, Recorder
from allready.patterns import compiled

EQUAL = {"all_reduce"}
"""Operations to which all members give equally many elements."""
COMPARED = {
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", "broadcast", "reduce", "gather", "scatter"
}  # fmt: skip
"""Calls of all members together; sends and receives take numbers that differ between ranks without a fault."""
UNLIKELY_NUMBER = 1_000
"""Lines that name no group may be of several; with a number like this one they are hardly so by chance."""


def watchdog_mismatches(progress: Iterable[GroupProgress], events: Iterable[Event]) -> list[Mismatch]:
    """Groups in which ranks gave up in different operations with the same number: at most one for each.

    A rank is odd where more than half of all members made another call.  Of lines that name no group only other
    operations under one large number count, and no rank is odd: groups side by side stand at one number as well.
    """
    is_named = any(e.values.get("pg_guid") or compiled(TAG).search(e.text) for e in events if e.signature in SPEAKING)
    reported = tuple(progress)
    compared = (_compared(group, reported, is_named=is_named) for group in reported)
    return [mismatch for mismatch in compared if mismatch is not None]


def _compared(group: GroupProgress, reported: Sequence[GroupProgress], *, is_named: bool) -> Mismatch | None:
    is_one = is_named and group.is_named
    if is_named and not is_one:
        group = _with_those_beside(group, reported)
    made = {
        rank: p.stuck
        for rank, p in group.positions.items()
        if p.gave_up and p.stuck is not None and p.stuck.name in COMPARED
        if is_one or p.stuck.seq >= UNLIKELY_NUMBER
    }
    keys = {
        r: (o.seq, [(o.name, o.num_elements if is_one and o.name in EQUAL else None)]) for r, o in sorted(made.items())
    }
    of = GroupCalls(
        group=group.group,
        label=group.label,
        source=Recorder.WATCHDOG,
        calls=numbered(keys),
        operation=lambda rank, _: made[rank],
        origin=lambda rank, _: group.positions[rank].origin,
        members=group.members,
    )
    compared = of.compare()
    return replace(compared[0], missing=(), **({} if is_one and group.members else {"odd": ()})) if compared else None


def _with_those_beside(nameless: GroupProgress, reported: Sequence[GroupProgress]) -> GroupProgress:
    """The ranks whose lines name no group, and those that stand at one of their numbers in the only group it may be.

    Of several ranks in one group a log that is cut often shows only the time-out, without the line that names the
    group, of all but one.
    """
    numbers = {p.stuck.seq for p in nameless.positions.values() if p.stuck is not None}
    meant = [
        group
        for group in reported
        if group.group != nameless.group
        and any(p.stuck is not None and p.stuck.seq in numbers for p in group.positions.values())
        and (not group.members or set(nameless.positions) <= set(group.members))
    ]
    if len(meant) != 1:
        return nameless
    more = {r: p for r, p in meant[0].positions.items() if p.stuck is not None and p.stuck.seq in numbers}
    return replace(meant[0], members=(), positions={**more, **nameless.positions})
