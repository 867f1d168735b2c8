"""What rules about a running job ask of its statuses: since when something has held, who moves, names of ranks."""

from collections.abc import Callable, Iterable
from itertools import pairwise

from allready.judging.places import Place, ranks_at
from allready.model import GroupMark, Live, RankEvidence, RankStatus, World
from allready.model.live import IDLE_SHARE

SILENT_S = 2.5
"""An agent speaks every second; after this it does not."""

MAX_ON_ITS_WAY_S = 3.0
"""A word may be so much older than its arrival; beyond that the node's clock is wrong."""

BLOCKED_SHARE = 0.002
BLOCKED_MIN_S = 0.002
AGED_S = 1.0
"""An agent speaks so often; an older word is late."""
WORKS_SHARE = 0.5
MOVES_S = 1.0
"""A stack that changed so short a time ago is one of a rank that does something."""
SHARE_OF_S = 2.5
"""The share of processor time of the last seconds tells of a place only after these."""
RECENT_S = 5.0
IDLE_WORDS = 0.8
"""Of the words of the last half minute, so many of a rank that only goes round in a poll tell of no work: to write down
its records and stacks costs it a moment."""


def named(live: Live, world: World | None, rank_numbers: Iterable[int]) -> str | None:
    """`rank 2 (gpu01, pid 1037)`, `rank 0-3 (gpu01, gpu02)`."""
    ranks = set(rank_numbers)
    names = {n.node_rank: n.name for n in world.nodes} if world is not None else {}
    names |= {n: s.name for n, s in live.statuses.items() if s.name}
    node_of, statuses = live.node_of_rank(), live.ranks()
    return ranks_at(
        ranks, {r: Place(node_of[r], names.get(node_of[r], ""), statuses[r].pid) for r in ranks if r in node_of}
    )


def status_of(live: Live, rank: int) -> RankStatus | None:
    """The newest word about one rank."""
    return live.ranks().get(rank)


def evidence_of(live: Live, rank: int) -> RankEvidence | None:
    """What was gathered of one rank while something is suspected."""
    node = live.node_of_rank().get(rank)
    answer = live.evidence.get(node) if node is not None else None
    return next((r for r in answer.ranks if r.rank == rank), None) if answer is not None else None


def age_s(live: Live, node: int | None) -> float:
    """How old a node's newest word is: by its date if that can be right, else since it came."""
    if node is None or node not in live.statuses:
        return 0.0
    heard = live.heard_s.get(node, 0.0)
    status = live.statuses[node]
    dated = live.now_s - status.by_node_0(status.time_s)
    return dated if heard <= dated <= heard + MAX_ON_ITS_WAY_S else heard


def held_s(live: Live, rank: int, test: Callable[[RankStatus], bool]) -> float | None:
    """For how long every word about a rank has passed the test; None when the newest does not.

    The silence since the newest word counts: an agent tells at once when a process stops or goes on.
    """
    node = live.node_of_rank().get(rank)
    if node is None:
        return None
    newest = live.statuses[node]
    begin = None
    for status in (newest, *reversed(live.history.get(node, ()))):
        one = next((r for r in status.ranks if r.rank == rank), None)
        if one is None or status.attempt != newest.attempt or not test(one):
            break
        begin = status.time_s
    return None if begin is None else max(0.0, newest.time_s - begin) + age_s(live, node)


def is_silent(live: Live, rank: int) -> bool:
    """Whether nothing is received from the rank's whole node."""
    node = live.node_of_rank().get(rank)
    return node is None or node in live.lost or live.heard_s.get(node, 0.0) > SILENT_S


def mark_of(live: Live, rank: int, group: str) -> GroupMark | None:
    """How far a rank says that it came in a group, by the group's own name."""
    status = status_of(live, rank)
    return next((g for g in status.groups if g.group == group), None) if status is not None else None


def entered_s(live: Live, rank: int, group: str) -> float | None:
    """When the rank entered the operation that it waits in, on node 0's clock; None if it waits in none.

    Its cell counts the sends and receives of two ranks with the other operations of their group.
    """
    mark = mark_of(live, rank, group)
    if mark is None or mark.waiting_s is None:
        return None
    status = live.statuses[live.node_of_rank()[rank]]
    return status.by_node_0(status.time_s) - mark.waiting_s


def waited_s(live: Live, ranks: Iterable[int], group: str) -> float:
    """For how long all of them have waited in their last operation of a group: since the last of them entered it."""
    times = [t for r in ranks if (t := entered_s(live, r, group)) is not None]
    return max(0.0, live.now_s - max(times)) if times else 0.0


def same_place_s(live: Live, rank: int) -> float:
    """For how long the rank's main thread has stood in one place; 0 when that is not known.

    A loop that is looked at now and then seems to stand where it mostly waits: an operation that was made meanwhile, or
    processor time of the thread, tells that it went on.  The time since the newest word, which is long where the
    machine is overloaded, counts for no more than the word itself shows: a rank that moves may have gone on moving.
    """
    since_s = since_by_node_s(live, rank)
    if since_s is None:
        return 0.0
    node = live.node_of_rank()[rank]
    seen_s = live.statuses[node].time_s - since_s
    stay = seen_s + min(age_s(live, node), max(seen_s, AGED_S))
    blocked = _blocked_s(live, rank)
    return max(0.0, stay if blocked is None else min(stay, blocked))


def share_here(live: Live, rank: int) -> float:
    """The share of processor time of the last seconds where it tells of what the main thread does now: it goes from
    place to place, or has stood in this one for longer than the share is of; else 0."""
    status = status_of(live, rank)
    since_s, share = since_by_node_s(live, rank), 0.0 if status is None else status.cpu_share or 0.0
    if since_s is None:
        return share
    stands_s = live.statuses[live.node_of_rank()[rank]].time_s - since_s
    return share if stands_s < MOVES_S or same_place_s(live, rank) > SHARE_OF_S else 0.0


def asleep_s(live: Live, rank: int) -> float:
    """For how long a rank that has no beacon has used next to no processor or GPU, and no child of it either; 0 where
    that is not known, or where its beacon says where it stands."""
    status, node = status_of(live, rank), live.node_of_rank().get(rank)
    if status is None or node is None or status.site_since_s is not None:
        return 0.0
    slept_s = held_s(live, rank, lambda one: one.pid == status.pid and one.is_asleep)
    blocked_s = _blocked_s(live, rank)
    if slept_s is None or blocked_s is None:
        return 0.0
    begins_s = min((word.time_s for word in live.history.get(node, ())), default=live.now_s)
    is_whole = slept_s >= live.statuses[node].time_s - begins_s  # no word that is kept shows it at work
    return blocked_s if is_whole else min(slept_s, blocked_s)


def same_call_s(live: Live, rank: int) -> float:
    """For how long the rank's main thread has been in one call of a library, whatever it does there; 0 if unknown."""
    status, node = status_of(live, rank), live.node_of_rank().get(rank)
    since = [] if status is None else [t for t in (status.site_since_s, status.visit_since_s) if t is not None]
    return max(0.0, live.statuses[node].time_s - min(since) + age_s(live, node)) if since and node is not None else 0.0


def since_operation_s(live: Live, rank: int) -> float:
    """For how long a rank has begun and completed no operation in any group; 0 where it has made none."""
    status, node = status_of(live, rank), live.node_of_rank().get(rank)
    moved = [g.moved_s for g in status.groups if g.moved_s is not None] if status is not None else []
    if node is None or not moved:
        return 0.0
    return max(0.0, live.statuses[node].time_s - max(moved) + age_s(live, node))


def since_by_node_s(live: Live, rank: int) -> float | None:
    """Since when the rank's main thread has stood where it stands, on its node's clock; None when that is not known."""
    status = status_of(live, rank)
    if status is None or status.site_since_s is None:
        return None
    since_s = status.site_since_s
    if status.visit_since_s is not None and status.visit_since_s < since_s and _only_polls(live, status):
        since_s = status.visit_since_s
    return max([since_s, *(g.moved_s for g in status.groups if g.moved_s is not None)])


def _only_polls(live: Live, status: RankStatus) -> bool:
    """Whether neither the rank nor a child nor its GPU has worked while its main thread went round in one call."""
    node = live.node_of_rank()[status.rank]
    words = (status, *(r for word in live.history.get(node, ()) for r in word.ranks if r.rank == status.rank))
    shares = [
        max(w.cpu_share or 0.0, w.children_cpu_share or 0.0, w.gpu_busy_share or 0.0)
        for w in words
        if w.pid == status.pid and w.visit_since_s == status.visit_since_s and w.cpu_share is not None
    ]
    num_idle = sum(share < IDLE_SHARE for share in shares)
    return _blocked_s(live, status.rank) is not None and num_idle > 0 and num_idle >= IDLE_WORDS * len(shares)


def _blocked_s(live: Live, rank: int) -> float | None:
    """For how long the main thread has used no processor time; None when that is not known, or when it works.

    Only of a thread that is not seen running: one that computes for long in one place stands there, too.
    """
    status = status_of(live, rank)
    node = live.node_of_rank().get(rank)
    if status is None or node is None or status.main_cpu_s is None:
        return None
    newest = live.statuses[node]
    begin, used = newest.time_s, status.main_cpu_s
    for word in reversed(live.history.get(node, ())):
        one = next((r for r in word.ranks if r.rank == rank), None)
        if one is None or one.main_cpu_s is None or word.attempt != newest.attempt or one.pid != status.pid:
            break
        if not rests(used - one.main_cpu_s, newest.time_s - word.time_s):
            share = (used - one.main_cpu_s) / max(newest.time_s - word.time_s, 0.1)
            if share > WORKS_SHARE * (1.0 - min(1.0, (status.queued_share or 0.0) + (status.throttled_share or 0.0))):
                return None  # it works as much as it gets a CPU for
            break
        begin = word.time_s
    return newest.time_s - min(begin, live.rested_s.get(rank, begin)) + age_s(live, node)


def rests(used_s: float, span_s: float) -> bool:
    """Whether a thread that used so much processor time in a span was blocked all of it."""
    return used_s <= BLOCKED_SHARE * span_s + BLOCKED_MIN_S


def place_since_s(live: Live, rank: int) -> float | None:
    """Since when, on node 0's clock."""
    since_s = since_by_node_s(live, rank)
    return None if since_s is None else live.statuses[live.node_of_rank()[rank]].by_node_0(since_s)


def usual_stay_s(live: Live, rank: int) -> float:
    """The longest time that the rank's main thread stayed in one place before the present one, as far as is known."""
    node = live.node_of_rank().get(rank)
    since: list[float] = []
    for status in live.history.get(node, ()) if node is not None else ():
        one = next((r for r in status.ranks if r.rank == rank), None)
        if one is not None and one.site_since_s is not None and (not since or one.site_since_s > since[-1] + 0.05):
            since.append(one.site_since_s)
    return max((b - a for a, b in pairwise(since)), default=0.0)


def a_gpu_computes(live: Live) -> bool:
    """Whether a GPU of any rank is busy: what a rank waits for may be its result."""
    return any((s.gpu_busy_share or 0.0) > IDLE_SHARE for s in live.ranks().values())


def is_idle(live: Live, rank: int) -> bool:
    """Whether it and its children have used next to no processor time where it stands; False when that is not known.

    Any word of the last seconds will do: to write down its records and stacks costs a rank a moment of work.
    """
    now = status_of(live, rank)
    node = live.node_of_rank().get(rank)
    if now is None or node is None:
        return False
    newest_s = live.statuses[node].time_s
    words = [(newest_s, now)]
    for status in live.history.get(node, ()):
        words += [(status.time_s, r) for r in status.ranks if r.rank == rank]
    return any(
        word.cpu_share is not None and word.cpu_share < IDLE_SHARE and (word.children_cpu_share or 0.0) < IDLE_SHARE
        for time_s, word in words
        if time_s >= newest_s - RECENT_S
        and word.site_since_s == now.site_since_s
        and (word.site_since_s is None or time_s >= word.site_since_s + 0.5)
    )
