"""How long ranks wait, from their statuses: asked by agents, and by node 0 in every sample."""

from msgspec import Struct

from allready.model import GroupMark, NodeStatus, RankStatus

FLOOR_S = 1.0
"""A wait that is shorter is none."""
STATUS_EVERY_S = 1.0
"""Agents send a status so often, and at once when a rank begins to wait for longer than FLOOR_S (`waits_s`)."""


class Word(Struct, frozen=True, kw_only=True):
    """The newest word about one rank.  `age_s`: how old it is."""

    node: int
    status: RankStatus
    time_s: float
    age_s: float


def waits_s(status: NodeStatus) -> dict[int, float]:
    """How long each rank of a node has waited with nothing moving in its group; see `STATUS_EVERY_S`."""
    found: dict[int, float] = {}
    for rank in status.ranks:
        if not rank.is_gone:
            word = Word(node=status.node_rank, status=rank, time_s=status.time_s, age_s=0.0)
            found[rank.rank] = max((min(waited, still) for _, waited, still in pending(word)), default=0.0)
    return found


def pending(word: Word) -> list[tuple[GroupMark, float, float]]:
    """Groups in which the rank waits: its mark, for how long, and since when nothing has moved there.

    A loop that reduces in every step is mostly seen in the middle of a short wait.  That wait has not grown with the
    word's age: of a long one there would be a newer word.
    """
    found = []
    age_s = max(0.0, word.age_s - STATUS_EVERY_S)
    for mark in word.status.groups:
        if mark.completed is None or mark.enqueued <= mark.completed:
            continue
        still = age_s + (word.time_s - mark.moved_s if mark.moved_s is not None else mark.waiting_s or 0.0)
        waited = age_s + mark.waiting_s if mark.waiting_s is not None else still
        found.append((mark, max(0.0, waited), max(0.0, still)))
    return found
