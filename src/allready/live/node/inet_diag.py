"""TCP connections from the kernel itself (INET_DIAG over netlink): queues, retransmissions, rates.

Works in any network namespace (the calling thread's) and without rights: any user may see sockets, and whose they are
is found out through /proc.  Older kernels give a shorter `tcp_info`: what it lacks is None.
"""

import errno
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from allready.errors import FactUnavailable
from allready.facts.netlink_dump import SOCK_DIAG, attributes, dump, opened
from allready.model.addresses import plain_address
from allready.model.live import SocketRow

SOCK_DIAG_BY_FAMILY = 20
INET_DIAG_INFO = 2
RETRANSMIT_TIMER, PROBE_TIMER = 1, 4

STATES = {
    1: "ESTABLISHED", 2: "SYN_SENT", 3: "SYN_RECV", 4: "FIN_WAIT1", 5: "FIN_WAIT2", 6: "TIME_WAIT", 7: "CLOSE",
    8: "CLOSE_WAIT", 9: "LAST_ACK", 10: "LISTEN", 11: "CLOSING", 12: "SYN_RECV",
}  # fmt: skip
CONNECTIONS = sum(1 << n for n in (1, 2, 3, 4, 5, 8, 9, 11))
LISTENING = 1 << 10
HALF_OPEN = 1 << 3
"""First packets that came and were answered, with no reply since: they belong to no process yet (inode 0)."""
MAX_SOCKETS = 100_000
_UNKNOWN = 0xFFFFFFFF
WITH_SACK = 2
"""Of the options that both ends agreed upon; without it none of them can say that a segment came twice."""


def connections(
    *, timeout_s: float, states: int = CONNECTIONS, is_wanted: Callable[[int], bool] = lambda _: True
) -> Iterator[tuple[int, SocketRow]]:
    """All TCP sockets in these states whose inode is wanted, IPv4 and then IPv6, as many as arrive in time.

    Each with its inode; whose it is, the caller finds out.

    Raises:
        FactUnavailable: netlink or INET_DIAG is refused here, or did not answer in time.
    """
    until = time.monotonic() + timeout_s
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            question = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), states)
            with opened(SOCK_DIAG) as sock:
                answers = dump(sock, SOCK_DIAG_BY_FAMILY, question, SOCK_DIAG_BY_FAMILY, until)
                for body in islice(answers, MAX_SOCKETS):
                    if len(body) >= 72 and is_wanted(struct.unpack_from("=I", body, 68)[0]):
                        found = parse(body)
                        if found is not None:
                            yield found
        except (OSError, ValueError) as error:
            if family == socket.AF_INET6 and getattr(error, "errno", None) in {errno.ENOENT, errno.EAFNOSUPPORT}:
                return  # a kernel without IPv6
            raise FactUnavailable("INET_DIAG: {error}", error=error) from error


def parse(body: bytes) -> tuple[int, SocketRow] | None:
    """One `inet_diag_msg` with its attributes, and its inode; None when it is damaged or of another family."""
    if len(body) < 72:
        return None
    family, state, timer, retransmits = struct.unpack_from("=BBBB", body)
    if family not in {socket.AF_INET, socket.AF_INET6}:
        return None
    local_port, remote_port = struct.unpack_from("!HH", body, 4)
    width = 4 if family == socket.AF_INET else 16
    receive_queue, send_queue, _, inode = struct.unpack_from("=IIII", body, 56)
    row: dict[str, Any] = {
        "rank": None,
        "pid": None,
        "local": plain_address(socket.inet_ntop(family, body[8 : 8 + width])),
        "local_port": local_port,
        "remote": plain_address(socket.inet_ntop(family, body[24 : 24 + width])),
        "remote_port": remote_port,
        "state": STATES.get(state, "unknown"),
        "receive_queue_bytes": receive_queue,
        "send_queue_bytes": send_queue,
    }
    info = attributes(body[72:]).get(INET_DIAG_INFO)
    if info is None and row["state"] == "SYN_RECV":
        row["retransmits"] = row["backoff"] = retransmits
    return inode, SocketRow(**row, **(_info(info, timer, retransmits) if info is not None else {}))


def _info(data: bytes, timer: int, retransmits: int) -> dict[str, Any]:
    def u32(at: int) -> int | None:
        return int.from_bytes(data[at : at + 4], sys.byteorder) if len(data) >= at + 4 else None

    def u64(at: int) -> int | None:
        return int.from_bytes(data[at : at + 8], sys.byteorder) if len(data) >= at + 8 else None

    def micro(value: int | None) -> float | None:
        return None if value is None or value == _UNKNOWN else value / 1e6

    def milli(value: int | None) -> float | None:
        return None if value is None else value / 1e3

    def last_received() -> float | None:
        # Data one way only (NCCL's sockets): the end that sends gets acknowledgements and nothing else.
        times = [t for t in (milli(u32(52)), milli(u32(56))) if t is not None]
        return min(times, default=None)

    probes, backoff = (data[3], data[4]) if len(data) >= 5 else (0, 0)
    rate = u64(160)
    # A receiver that does not read answers every probe with "full": the interval doubles, but nothing is lost.  The
    # same where it closed its window over data in flight, which is repeated as if it were lost.
    last_answer_ms, rto_us = u32(56), u32(8)
    is_full = u32(228) == 0 and last_answer_ms is not None and rto_us is not None and last_answer_ms * 1000 <= rto_us
    return {
        "backoff": probes if timer == PROBE_TIMER else 0 if is_full else backoff,
        "retransmits": retransmits if timer == RETRANSMIT_TIMER else 0,
        "rto_s": micro(u32(8)),
        "unacked": u32(24) or 0,
        "lost": u32(32) or 0,
        "last_sent_s": milli(u32(44)),
        "last_received_s": last_received(),
        "rtt_s": micro(u32(68)) or None,
        "rtt_variation_s": micro(u32(72)),
        "total_retransmits": u32(100) or 0,
        "needless_retransmits": u32(216) if len(data) >= 6 and data[5] & WITH_SACK else None,
        "bytes_acked": u64(120),
        "bytes_received": u64(128),
        "segments_received": u32(140),
        "unsent_bytes": u32(144),
        "min_rtt_s": micro(u32(148)) or None,
        "delivery_rate_bytes_per_s": None if rate is None else float(rate),
        "busy_s": micro(u64(168)),
        "receiver_limited_s": micro(u64(176)),
        "buffer_limited_s": micro(u64(184)),
        "bytes_sent": u64(200),
        "segment_bytes": u32(16) or None,
        "path_mtu_bytes": u32(60) or None,
    }
