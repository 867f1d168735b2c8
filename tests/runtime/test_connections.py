"""How connections of a group end: for reading at once, for writing only when no rank can be inside of an operation."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from allready.proc.own_sockets import ends, sockets
from allready.runtime.connections import EndedGroups

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
    ended = EndedGroups()
    ended.end({own.fileno(): sockets()[own.fileno()]}, (0, 1, 2))
    assert own.recv(10) == b""
    assert own.send(b"x") == 1
    own.close()  # as Gloo does when it has read the end
    for _ in range(3):
        assert other.send(b"y" * 1000) == 1000
    assert other.recv(10) == b"x"
    ended.close((0, 2))  # rank 1 may still be in an operation
    assert other.send(b"z") == 1
    ended.close((0, 1, 2, 3))
    with contextlib.suppress(ConnectionError):  # there was data that no rank had read
        assert other.recv(10) == b""
    with pytest.raises(BrokenPipeError):
        other.send(b"z")


def test_a_descriptor_that_is_another_connection_by_now_is_left_alone(pair: Pair) -> None:
    own, other = pair
    ended = EndedGroups()
    ended.end({own.fileno(): sockets()[other.fileno()]}, (0, 1))
    other.send(b"here")
    assert own.recv(10) == b"here"
    ended.close()


def test_ending_twice_keeps_a_connection_once(pair: Pair) -> None:
    own, _ = pair
    ended = EndedGroups()
    before = len(sockets())
    for _ in range(3):
        ended.end({fd: i for fd, i in sockets().items() if ends(fd) == ends(own.fileno())}, (0, 1))
    assert len(sockets()) == before + 1
    ended.close()
    assert len(sockets()) == before


def test_what_is_on_its_way_to_a_peer_that_reads_is_not_cut_off(pair: Pair) -> None:
    """Gloo's thread has written what the kernel takes, and the rest when there is room."""
    own, other = pair
    own.setblocking(False)
    rest = memoryview(bytes(1 << 24))
    rest = rest[own.send(rest) :]
    ended = EndedGroups()
    ended.end({own.fileno(): sockets()[own.fileno()]}, (0, 1))
    with pytest.raises(BlockingIOError):
        own.recv(1)  # not yet
    while rest:
        other.recv(1 << 20)
        with contextlib.suppress(BlockingIOError):
            rest = rest[own.send(rest) :]
    other.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while other.recv(1 << 20):
            pass
    own.settimeout(5.0)
    assert own.recv(1) == b""
    ended.close()


def test_a_peer_that_does_not_read_is_not_waited_for(pair: Pair) -> None:
    own, _ = pair
    own.setblocking(False)
    own.send(bytes(1 << 24))
    ended = EndedGroups()
    ended.end({own.fileno(): sockets()[own.fileno()]}, (0, 1))
    own.settimeout(60.0)
    assert own.recv(1) == b""
    ended.close()


def test_a_number_that_is_a_file_by_now_leaves_no_descriptor_behind(pair: Pair, tmp_path: Path) -> None:
    own, _ = pair
    identity = sockets()[own.fileno()]
    with (tmp_path / "checkpoint").open("w") as file:
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(5):
            EndedGroups().end({file.fileno(): identity}, (0, 1))
            assert ends(file.fileno()) == (0, 0)
        assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_where_no_thread_can_be_started_connections_end_at_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    own, _ = pair

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    ended = EndedGroups()
    ended.end({own.fileno(): sockets()[own.fileno()]}, (0, 1))
    assert own.recv(10) == b""
    ended.close()
