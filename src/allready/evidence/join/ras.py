"""RAS answers in global ranks, and whether what they show is frozen."""

from collections.abc import Sequence

from msgspec.structs import replace

from allready.evidence.join.identity import Identities
from allready.evidence.reading import RasAnswer
from allready.model import GroupProgress, Position


def ras_progress(answers: Sequence[RasAnswer], identities: Identities) -> list[GroupProgress]:
    """The last answer's groups with global ranks; `complete` when an earlier answer, a second or more before, is equal.

    A communicator smaller than the job's is left in its own ranks only if the processes behind them are known; where
    they are not, it is dropped: its numbers would accuse the wrong ranks.
    """
    ordered = sorted((a for a in answers if a.groups), key=lambda a: (a.time_s is None, a.time_s or 0.0))
    found: dict[str, GroupProgress] = {}
    before: dict[str, tuple[RasAnswer, GroupProgress]] = {}
    for answer in ordered:
        for group in answer.groups:
            progress = _in_global_ranks(group, answer, identities)
            if progress is None:
                continue
            old = before.get(group.group)
            frozen = old is not None and _is_later(old[0], answer) and _same(old[1], progress)
            found[group.group] = replace(progress, complete=frozen)
            if old is None or not _same(old[1], progress):
                before[group.group] = (answer, progress)
    return list(found.values())


def _in_global_ranks(group: GroupProgress, answer: RasAnswer, identities: Identities) -> GroupProgress | None:
    ranks = {*group.positions, *group.absent}
    if group.size == identities.world_size:
        mapped: dict[int, int] | None = {r: r for r in ranks}
    else:
        mapped = {}
        for rank in ranks:
            host, pid = answer.hosts.get((group.group, rank), (None, None))
            world = identities.rank_of(host, pid) if pid is not None else None
            if world is None:
                mapped = None
                break
            mapped[rank] = world
    if mapped is None or len(set(mapped.values())) != len(mapped):
        return None
    members = tuple(range(group.size)) if group.size == identities.world_size else tuple(sorted(mapped.values()))
    return replace(
        group,
        members=members,
        positions={mapped[r]: p for r, p in sorted(group.positions.items())},
        absent={mapped[r]: why for r, why in sorted(group.absent.items())},
    )


def _is_later(a: RasAnswer, b: RasAnswer) -> bool:
    return a is not b and a.time_s is not None and b.time_s is not None and b.time_s - a.time_s >= 1.0


def _same(a: GroupProgress, b: GroupProgress) -> bool:
    return {r: _counts(p) for r, p in a.positions.items()} == {r: _counts(p) for r, p in b.positions.items()}


def _counts(position: Position) -> tuple[int, tuple[tuple[str, int], ...]]:
    return position.enqueued, tuple(sorted(position.counts.items()))
