"""For how long no rank has moved, from the nodes' words alone: what is left to report where the diagnosis has failed.

It shares nothing with the monitor, the rules or the readers of evidence, so that what ended those does not end it.
"""

from msgspec import Struct

from allready.model import NodeStatus, RankStatus
from allready.model.live import IDLE_SHARE, STILL_S

MAY_SPIN = {"communicating", "joining", "ending", "unknown"}
"""Phases in which a rank waits for others, or what it does is not known."""


class _Seen(Struct, frozen=True):
    """Where a rank is.  `since`: monotonic."""

    place: object
    since: float


class Standstill:
    """Takes every word of every node; `lasts` at any time."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}
        self._living: dict[int, tuple[int, ...]] = {}
        self._attempt = -1

    def take(self, status: NodeStatus, now: float) -> None:
        """A node's word.  `now`: monotonic."""
        if status.attempt != self._attempt:
            self._attempt = status.attempt
            self._seen.clear()
            self._living.clear()
        for rank in status.ranks:
            place, known = _place_of(rank), self._seen.get(rank.rank)
            if known is None or known.place != place or _is_awake(rank):
                self._seen[rank.rank] = _Seen(place, now)
        self._living[status.node_rank] = tuple(r.rank for r in status.ranks if not r.is_gone)

    def lasts(self, now: float) -> tuple[float, tuple[int, ...]] | None:
        """For how long no rank that lives has moved, and these; None where that is less than 40 s, or none lives."""
        ranks = tuple(sorted(rank for of_node in self._living.values() for rank in of_node))
        still_s = min((now - self._seen[rank].since for rank in ranks), default=0.0)
        return (still_s, ranks) if still_s >= STILL_S else None


def _place_of(rank: RankStatus) -> object:
    """What changes while a rank goes on: its process, its operations, and the line in which its main thread stands."""
    counts = tuple((g.group, g.enqueued, g.completed) for g in rank.groups)
    return rank.pid, rank.is_gone, rank.num_operations, counts, rank.site_since_s


def _is_awake(rank: RankStatus) -> bool:
    """Whether a rank sleeps on purpose, uses a processor, itself or by a child, or, where its line is not known, a GPU.

    One that waits for others may spin in its line, and its GPU with it: of it only children count.  What computes for
    long in one line and what spins there for ever look alike, and are taken for the former.
    """
    if rank.sleeps or rank.site_since_s is None:
        return rank.sleeps or not rank.is_asleep
    shares = (rank.children_cpu_share, None if rank.phase in MAY_SPIN else rank.cpu_share)
    return any(share is not None and share >= IDLE_SHARE for share in shares)
