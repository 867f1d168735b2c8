"""The TCP connections of a node's ranks, as rows for the monitor."""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from allready.live.node.inet_diag import CONNECTIONS, HALF_OPEN, LISTENING, connections
from allready.model.live import SocketRow
from allready.proc.process import socket_inodes

MAX_ROWS = 512


class Owner(Struct, frozen=True):
    """Whose a socket is.  `rank` is None for a process that belongs to no rank."""

    rank: int | None
    pid: int


def owners(processes: Iterable[tuple[int, int]]) -> dict[int, Owner]:
    """Inode -> owner, of all sockets that these (rank, pid) have open.

    Workers of a DataLoader inherit their rank's sockets: give ranks before their children, the first one keeps it.
    """
    found: dict[int, Owner] = {}
    for rank, pid in processes:
        for inode in socket_inodes(pid):
            found.setdefault(inode, Owner(rank, pid))
    return found


def rows_of(owned: Mapping[int, Owner], *, timeout_s: float) -> tuple[SocketRow, ...]:
    """Connections of these owners, those in trouble first, at most 512.

    With them half-open connections to a port at which an owner listens: they belong to no process yet, and show that
    the first packet came.

    Raises:
        FactUnavailable: the kernel does not answer.
    """
    if not owned:
        return ()
    found = []
    half_open: list[SocketRow] = []
    listening: dict[int, Owner] = {}
    for inode, row in connections(
        timeout_s=timeout_s,
        states=CONNECTIONS | LISTENING | HALF_OPEN,
        is_wanted=lambda inode: inode == 0 or inode in owned,
    ):
        if row.state == "LISTEN":
            listening.setdefault(row.local_port, owned[inode])
        elif inode in owned:
            found.append(_of(owned[inode], row))
        elif row.state == "SYN_RECV":
            half_open.append(row)
    found += [_of(listening[row.local_port], row) for row in half_open if row.local_port in listening]
    found.sort(key=trouble, reverse=True)
    return tuple(found[:MAX_ROWS])


def _of(owner: Owner, row: SocketRow) -> SocketRow:
    return replace(row, rank=owner.rank, pid=owner.pid)


def trouble(row: SocketRow) -> tuple[int, ...]:
    """A greater one matters more to the monitor."""
    return (
        row.backoff,
        row.state in {"SYN_SENT", "SYN_RECV"},
        row.retransmits + row.lost > 0,
        row.send_queue_bytes + row.receive_queue_bytes + row.unacked > 0,
        row.total_retransmits,
        row.bytes_sent or row.bytes_acked or 0,
    )


def listeners(port: int, *, timeout_s: float) -> tuple[int, ...]:
    """Inodes of the sockets that listen on a port, of any process."""
    rows = connections(timeout_s=timeout_s, states=LISTENING)
    return tuple(inode for inode, row in rows if row.local_port == port)
