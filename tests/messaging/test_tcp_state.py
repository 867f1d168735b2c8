"""What the kernel says of real connections; and how a silence is recognised by it."""

import asyncio
import socket
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from allready.messaging import link as module
from allready.messaging.channel import ConnectionLostError
from allready.messaging.link import Link
from allready.messaging.silence import LATE_FACTOR
from allready.messaging.sockets import Delivery, TcpState, tcp_state
from allready.model import LossReason


def test_a_real_connection_counts_what_comes_in() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        far, _ = server.accept()
        with far:
            before = tcp_state(near).num_segments
            far.sendall(b"x")
            assert near.recv(1) == b"x"
            found = tcp_state(near)
            assert found.num_segments > before > 0
            assert (found.num_unacked, found.num_timeouts, found.is_open) == (0, 0, True)
            far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with pytest.raises(ConnectionResetError):
            near.recv(1)
        assert not tcp_state(near).is_open


def test_only_what_arrived_in_the_end_counts_as_sent_again() -> None:
    def after(*states: TcpState) -> tuple[int, int]:
        delivery = Delivery()
        for state in states:
            delivery.note(state)
        return delivery.num_sent, delivery.num_resent

    arrived = TcpState(0, 0, 9, num_sent=20, num_retransmits=6, is_open=True)
    assert after(arrived) == (20, 6)
    gone = replace(arrived, num_unacked=3, num_timeouts=5, num_sent=26, num_retransmits=12)  # six more, in vain
    assert after(arrived, gone) == (20, 6)
    assert after(gone) == (19, 5)
    reset = replace(gone, num_unacked=0, num_timeouts=0, is_open=False)  # the kernel forgot what was on its way
    assert after(arrived, reset) == (20, 6)


def open_state(num_unacked: int, num_timeouts: int, num_segments: int) -> TcpState:
    return TcpState(num_unacked, num_timeouts, num_segments, is_open=True)


def of(info: bytes) -> TcpState:
    return tcp_state(SimpleNamespace(getsockopt=lambda *_: info))  # type: ignore[arg-type]


def test_an_old_kernel_tells_less() -> None:
    whole = bytearray(144)
    whole[4] = 3
    struct.pack_into("=I", whole, 24, 7)
    struct.pack_into("=I", whole, 140, 9)
    assert of(bytes(whole)) == TcpState(num_unacked=7, num_timeouts=3, num_segments=9, num_bytes=(0, 0))
    assert of(bytes(whole[:104])) == TcpState(num_unacked=7, num_timeouts=3)
    assert of(b"") == TcpState()


class Silent(asyncio.StreamReader):
    """Nothing ever comes."""


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        ([open_state(5, 3, 40 + n) for n in range(20)], LossReason.ONE_WAY),
        ([open_state(5, 3, 40)] * 20, LossReason.SILENT),  # nothing comes in either
        ([open_state(0, 0, 40 + n) for n in range(20)], LossReason.AGENT_SILENT),  # its kernel acknowledges
        ([open_state(1, 0, 40 + n) for n in range(20)], LossReason.AGENT_SILENT),  # what was sent just now will be
        ([open_state(5, 3, 40 + min(n, 1)) for n in range(20)], LossReason.SILENT),  # what came was before
        ([TcpState()] * 20, LossReason.SILENT),  # no socket to ask
    ],
)
async def test_a_silence_tells_which_way_is_broken(
    states: list[TcpState], reason: LossReason, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENCE_S", 0.3)
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.05)
    sent: list[bytes] = []

    async def drain() -> None:
        return

    writer: Any = SimpleNamespace(
        write=sent.append, drain=drain, close=lambda: None, wait_closed=drain, get_extra_info=lambda _: None
    )
    left = iter([*states, *[states[-1]] * 100])
    monkeypatch.setattr(Link, "_state", lambda _: next(left))
    link = Link(1, Silent(), writer)
    try:
        with pytest.raises(ConnectionLostError, match="no heartbeat") as error:
            await link.receive(timeout_s=5.0)
        assert error.value.loss.reason is reason
        if reason is LossReason.AGENT_SILENT:  # who answers has its longer time, also while the newest is under way
            assert link.silent_s >= 0.3 * LATE_FACTOR
    finally:
        await link.close()
    assert sent


async def test_a_connection_without_a_socket_is_no_failure() -> None:
    writer: Any = SimpleNamespace(get_extra_info=lambda _: None)
    assert Link._state(SimpleNamespace(_writer=writer)) == TcpState()  # type: ignore[arg-type]
