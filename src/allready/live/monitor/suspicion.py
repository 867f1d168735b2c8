"""Whether something is worth a closer look: from statuses alone, many times a second.

A suspicion accuses no rank.  It makes the monitor ask all agents for evidence.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from allready.live.waits import FLOOR_S, Word, pending
from allready.model import NodeStatus
from allready.model.live import outsiders

BUSY_PHASES = {"starting", "importing", "compiling", "ending"}

EARLY_FLOOR_S = 2.0
EARLY_OPERATIONS = 20
"""Before so many operations the job's rhythm is not known, and first steps are slow."""
RHYTHM = 3.0
MAX_RHYTHM_S = 10.0
SILENT_S = 2.2
GIL_S = 1.0
JOIN_S = 3.0
PLACE_S = 2.0
AFTER_END_S = 0.4


class Suspicion(Struct, frozen=True, kw_only=True):
    """kind: "ended", "halted", "silent", "left", "waiting", "gil", "digests", "joining", "place"."""

    kind: str
    why: str
    ranks: tuple[int, ...] = ()
    group: str = ""


def suspect(
    statuses: Mapping[int, NodeStatus],
    heard_s: Mapping[int, float],
    lost: Iterable[int],
    *,
    has_other_digests: bool = False,
    rhythm_s: Callable[[str], float] = lambda _: 0.0,
) -> Suspicion | None:
    """The gravest thing that looks wrong, None when nothing does.  Nothing is wrong with ranks that no rank waits for.

    Args:
        heard_s: node -> seconds since its last message.
        has_other_digests: operations of equal number differ between ranks, or are of different iterations of their
        loops.
        rhythm_s: group -> usual time between its operations, 0 where not known.
    """
    outside = outsiders(statuses)
    words = [
        Word(node=node, status=rank, time_s=status.time_s, age_s=heard_s.get(node, 0.0))
        for node, status in sorted(statuses.items())
        for rank in status.ranks
        if rank.rank not in outside or rank.is_gone
    ]
    gone = [w for w in words if w.status.is_gone]
    bad = [w for w in gone if w.status.exit_code not in {None, 0} or w.status.signal]
    if bad:
        return _of("ended", "a rank has ended", bad)
    halted = [w for w in words if w.status.is_frozen]
    if halted and len(halted) + len(gone) < len(words):
        return _of("halted", "a process is stopped", halted)
    silent = sorted({*(n for n, age in heard_s.items() if age > SILENT_S), *lost})
    if silent and len(gone) < len(words):
        return Suspicion(kind="silent", why=f"no heartbeat of node {', '.join(map(str, silent))}")
    if has_other_digests:
        return Suspicion(kind="digests", why="ranks pair different operations")
    living = [w for w in words if not w.status.is_gone]
    if not living:
        return None
    return _left(living, gone) or _waiting(living, rhythm_s) or _gil(living) or _joining(living) or _place(living)


def _of(kind: str, why: str, words: Iterable[Word], group: str = "") -> Suspicion:
    ranks = tuple(sorted(w.status.rank for w in words))
    shown = ", ".join(map(str, ranks[:8])) + (", …" if len(ranks) > 8 else "")
    return Suspicion(kind=kind, why=f"{why} (rank {shown})", ranks=ranks, group=group)


def _left(living: list[Word], gone: list[Word]) -> Suspicion | None:
    """A rank ended well, and others still wait."""
    if not gone:
        return None
    waiting = [w for w in living if any(still >= AFTER_END_S for _, _, still in pending(w))]
    return _of("left", "others have ended while ranks wait", waiting) if waiting else None


def _waiting(living: list[Word], rhythm_s: Callable[[str], float]) -> Suspicion | None:
    """A rank waits, and nothing moves in that group for longer than it usually does."""
    early = min(w.status.num_operations for w in living) < EARLY_OPERATIONS
    by_group: dict[str, list[tuple[Word, float]]] = {}
    moved: dict[str, float] = {}
    for word in living:
        for mark, waited, still in pending(word):
            by_group.setdefault(mark.group, []).append((word, min(waited, still)))
        for mark in word.status.groups:
            if mark.moved_s is not None:
                age = word.age_s + word.time_s - mark.moved_s
                moved[mark.group] = min(moved.get(mark.group, age), age)
    for group, waits in sorted(by_group.items()):
        period = max([rhythm_s(group), *(w.status.period_s or 0.0 for w, _ in waits)])
        floor = max(EARLY_FLOOR_S if early else FLOOR_S, min(RHYTHM * period, MAX_RHYTHM_S))
        lasting = [w for w, s in waits if s >= floor]
        if lasting and moved.get(group, floor) >= FLOOR_S / 2:
            return _of("waiting", f"no progress in group {group}", lasting, group)
    return None


def _gil(living: list[Word]) -> Suspicion | None:
    stale = [
        w
        for w in living
        if (w.status.heartbeat_age_s or 0.0) >= GIL_S and w.status.phase not in BUSY_PHASES and w.age_s < GIL_S
    ]
    return _of("gil", "a rank runs no Python", stale) if stale and len(stale) < len(living) else None


def _same_place_s(word: Word) -> float:
    since = word.status.site_since_s
    if since is None:
        return 0.0
    moved = [g.moved_s for g in word.status.groups if g.moved_s is not None]
    return max(0.0, word.time_s - max([since, *moved]) + word.age_s)


def _joining(living: list[Word]) -> Suspicion | None:
    """Some have come to where all meet, others not."""
    joining = [w for w in living if w.status.phase == "joining" and not w.status.num_operations]
    others = [w for w in living if w.status.phase != "joining" and not w.status.num_operations]
    if not joining or not others or any(_same_place_s(w) < JOIN_S for w in joining):
        return None
    return _of("joining", "some ranks have not joined", others)


def _place(living: list[Word]) -> Suspicion | None:
    """Without a record of it, a rank waits when it stands in one place of a call that waits for others."""
    standing = [
        w
        for w in living
        if w.status.phase in {"communicating", "joining"} and not pending(w) and _same_place_s(w) >= PLACE_S
    ]
    no_record = [
        w
        for w in living
        if w.status.framework == "jax"
        and not w.status.groups
        and _same_place_s(w) >= PLACE_S
        and w.status.phase not in BUSY_PHASES
    ]
    found = standing or no_record
    return _of("place", "ranks stand in one place", found) if found else None
