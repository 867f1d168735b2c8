"""Connections that were idle for long and that something on the way may have forgotten."""

from allready.judging.link_ends import MIN_S, Stuck, address_book, key, newest_sockets, plain, reached
from allready.model import Live, SocketRow

ASKED_AT_ONCE_S = 0.5
UNDECIDED_S = 3.0
"""Agents' answers to the first question of a suspicion are there by then."""
IDLE_S = 55.0
"""The shortest time after which middle boxes are known to forget a connection is one minute."""


def is_stale(live: Live, end: Stuck) -> bool:
    """Whether this one connection was dropped by something that forgets idle ones, while its path works."""
    idle = idle_before_s(end.row)
    return idle is not None and idle >= IDLE_S and (bool(alive_beside(live, end)) or is_answered(live, end))


def idle_before_s(row: SocketRow) -> float | None:
    """For how long nothing came on a connection before its data began to go unanswered, at least."""
    if row.last_received_s is None or row.rto_s is None:
        return None
    # The time-out has doubled with every try, so all tries together took less than twice the present one.
    return max(0.0, row.last_received_s - 2 * row.rto_s - MIN_S)


def alive_beside(live: Live, end: Stuck) -> tuple[SocketRow, ...]:
    """Other connections between the same two nodes that got data since this one's began to go unanswered."""
    since = 2 * (end.row.rto_s or 0.0) + MIN_S
    book = address_book(live)
    return tuple(
        row
        for row in newest_sockets(live, end.src)[0]
        if key(row) != key(end.row)
        and book.get(plain(row.remote)) == end.dst
        and row.backoff == 0
        and row.last_received_s is not None
        and row.last_received_s < since
    )


def is_answered(live: Live, end: Stuck) -> bool:
    """Whether a first packet between the two nodes was answered after this end's data began to go unanswered."""
    return any(_answers(live, end))


def _answers(live: Live, end: Stuck) -> list[bool]:
    """What came of first packets between the two nodes since then, as far as any were sent.

    The time-outs so far took between the present one and twice that.  Nothing is suspected before ranks have waited
    for a second, so that what was asked in the present suspicion was asked after the data had been sent.
    """
    rto_s = end.row.rto_s or 0.0
    since_s = live.now_s - rto_s * (1 - 0.5**end.row.backoff)
    if live.since_s is not None and live.since_s > live.now_s - 2 * rto_s - MIN_S:
        since_s = min(since_s, live.since_s - ASKED_AT_ONCE_S)
    reach = reached(live, since_s)
    return [reach[way] for way in ((end.src, end.dst), (end.dst, end.src)) if way in reach]


def is_undecided(live: Live, end: Stuck) -> bool:
    """Whether it was idle for so long that it may be forgotten, and in a moment it is known whether its path works."""
    idle = idle_before_s(end.row)
    is_young = live.since_s is not None and live.now_s - live.since_s < UNDECIDED_S
    return idle is not None and idle >= IDLE_S and is_young and not _answers(live, end)
