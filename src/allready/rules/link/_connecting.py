"""Connections between nodes that are being opened in vain."""

from collections.abc import Iterator

from msgspec import Struct

from allready.judging.link_ends import CONNECTING, UNANSWERED, address_book, key, mirror, newest_sockets, plain
from allready.model import Live, SocketRow

HALF_OPEN = "SYN_RECV"


class Attempt(Struct, frozen=True, kw_only=True):
    """A connection that `src` opens to `dst` in vain.  `has_come`: the first packets came, the answers did not."""

    src: int
    dst: int
    row: SocketRow
    has_come: bool = False

    @property
    def lost(self) -> tuple[int, int]:
        """The direction in which packets are lost."""
        return (self.dst, self.src) if self.has_come else (self.src, self.dst)


def connecting(live: Live) -> Iterator[Attempt]:
    """First packets of connections between nodes that nobody answers, neither with yes nor with no."""
    book = address_book(live)
    rows = {n: newest_sockets(live, n)[0] for n in sorted(live.statuses)}
    half_open = {key(row) for found in rows.values() for row in found if row.state == HALF_OPEN}
    for node, found in rows.items():
        for row in found:
            other = book.get(plain(row.remote))
            if row.state == CONNECTING and row.backoff >= UNANSWERED and other is not None and other != node:
                yield Attempt(src=node, dst=other, row=row, has_come=mirror(key(row)) in half_open)
