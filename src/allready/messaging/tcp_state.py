"""What the kernel knows of one TCP connection: `struct tcp_info` of linux/tcp.h, as far as it is needed here."""

import struct

from msgspec import Struct

TCP_INFO_BYTES = 144
_BACKOFF = 4  # u8
_UNACKED = 24  # u32
_SEGMENTS_IN = 140  # u32; since Linux 4.2


class TcpState(Struct, frozen=True):
    """`num_unacked`: segments of ours on their way.  `num_timeouts`: doublings of the time-out now in force.
    `num_segments`: that came in, since the connection began."""

    num_unacked: int = 0
    num_timeouts: int = 0
    num_segments: int = 0


def tcp_state(info: bytes) -> TcpState:
    """From the answer to `getsockopt(IPPROTO_TCP, TCP_INFO)`; what an old kernel does not tell is 0."""
    return TcpState(
        num_unacked=_u32(info, _UNACKED),
        num_timeouts=info[_BACKOFF] if len(info) > _BACKOFF else 0,
        num_segments=_u32(info, _SEGMENTS_IN),
    )


def _u32(info: bytes, at: int) -> int:
    return int(struct.unpack_from("=I", info, at)[0]) if len(info) >= at + 4 else 0
