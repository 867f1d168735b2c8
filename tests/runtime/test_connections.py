"""How connections of a group end: for reading at once, for writing only when no rank can be inside of an operation."""

import contextlib
import socket
from collections.abc import Iterator

import pytest

from allready.runtime.connections import Ended, ends, sockets

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Both ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        own = socket.create_connection(server.getsockname(), timeout=5.0)
        other, _ = server.accept()
    other.settimeout(5.0)
    with own, other:
        yield own, other


def test_the_end_is_read_and_both_ends_can_write_although_the_owner_has_closed(pair: Pair) -> None:
    own, other = pair
    ended = Ended()
    ended.add(own.fileno(), sockets()[own.fileno()], (0, 1, 2))
    assert own.recv(10) == b""
    assert own.send(b"x") == 1
    own.close()  # as Gloo does when it has read the end
    for _ in range(3):
        assert other.send(b"y" * 1000) == 1000
    assert other.recv(10) == b"x"
    ended.close((0, 2))  # rank 1 may still be in an operation
    assert other.send(b"z") == 1
    ended.close((0, 1, 2, 3))
    with contextlib.suppress(ConnectionError):  # there was data that nobody had read
        assert other.recv(10) == b""
    with pytest.raises(BrokenPipeError):
        other.send(b"z")


def test_a_descriptor_that_is_another_connection_by_now_is_left_alone(pair: Pair) -> None:
    own, other = pair
    ended = Ended()
    ended.add(own.fileno(), sockets()[other.fileno()], (0, 1))
    other.send(b"here")
    assert own.recv(10) == b"here"
    ended.close()


def test_ending_twice_keeps_a_connection_once(pair: Pair) -> None:
    own, _ = pair
    ended = Ended()
    before = len(sockets())
    for _ in range(3):
        for fd, identity in sockets().items():
            if ends(fd) == ends(own.fileno()):
                ended.add(fd, identity, (0, 1))
    assert len(sockets()) == before + 1
    ended.close()
    assert len(sockets()) == before
