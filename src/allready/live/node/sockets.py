"""The TCP connections of a node's ranks, as rows for the judge."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from allready.live.node.inet_diag import CONNECTIONS, HALF_OPEN, LISTENING, Connection, connections
from allready.model.live import SocketRow
from allready.proc.process import socket_inodes

MAX_ROWS = 512


@dataclass(frozen=True, slots=True)
class Owner:
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
    half_open: list[Connection] = []
    listening: dict[int, Owner] = {}
    for connection in connections(
        timeout_s=timeout_s,
        states=CONNECTIONS | LISTENING | HALF_OPEN,
        is_wanted=lambda inode: inode == 0 or inode in owned,
    ):
        if connection.state == "LISTEN":
            listening.setdefault(connection.local_port, owned[connection.inode])
        elif connection.inode in owned:
            found.append(row_of(connection, owned[connection.inode]))
        elif connection.state == "SYN_RECV":
            half_open.append(connection)
    found += [row_of(c, listening[c.local_port]) for c in half_open if c.local_port in listening]
    found.sort(key=trouble, reverse=True)
    return tuple(found[:MAX_ROWS])


def trouble(row: SocketRow) -> tuple[int, ...]:
    """A greater one matters more to the judge."""
    return (
        row.backoff,
        row.state in {"SYN_SENT", "SYN_RECV"},
        row.retransmits + row.lost > 0,
        row.send_queue_bytes + row.receive_queue_bytes + row.unacked > 0,
        row.total_retransmits,
        row.bytes_sent or row.bytes_acked or 0,
    )


def listeners(port: int, *, timeout_s: float) -> tuple[Connection, ...]:
    """Sockets that listen on a port, of any process.

    Raises:
        FactUnavailable: the kernel does not answer.
    """
    return tuple(c for c in connections(timeout_s=timeout_s, states=LISTENING) if c.local_port == port)


def row_of(connection: Connection, owner: Owner) -> SocketRow:
    """The row of one connection."""
    return SocketRow(
        rank=owner.rank,
        pid=owner.pid,
        local=connection.local,
        local_port=connection.local_port,
        remote=connection.remote,
        remote_port=connection.remote_port,
        state=connection.state,
        receive_queue_bytes=connection.receive_queue_bytes,
        send_queue_bytes=connection.send_queue_bytes,
        unacked=connection.unacked,
        unsent_bytes=connection.unsent_bytes,
        retransmits=connection.retransmits,
        total_retransmits=connection.total_retransmits,
        backoff=connection.unanswered,
        lost=connection.lost,
        rto_s=connection.rto_s,
        rtt_s=connection.rtt_s,
        rtt_variation_s=connection.rtt_variation_s,
        min_rtt_s=connection.min_rtt_s,
        last_sent_s=connection.last_sent_s,
        last_received_s=connection.last_received_s,
        bytes_sent=connection.bytes_sent,
        bytes_acked=connection.bytes_acked,
        bytes_received=connection.bytes_received,
        segments_received=connection.segments_received,
        delivery_rate_bytes_per_s=connection.delivery_rate_bytes_per_s,
        busy_s=connection.busy_s,
        receiver_limited_s=connection.receiver_limited_s,
        buffer_limited_s=connection.buffer_limited_s,
    )
