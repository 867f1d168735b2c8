"""What the members of a group tell each other before it forms."""

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allready.live.beacon import names
from allready.messaging import job_store
from allready.messaging.job_store import JobStore
from allready.proc.own_sockets import sockets
from allready.runtime import group, last_failure, meeting, recovery
from allready.runtime.failures import RecoveryRefused
from tests.cases import cases
from tests.ports import free_port


class Store:
    """As torch's, which counts the requests; the other ranks come at the `late`-th look."""

    def __init__(self, *, late: int = 0, is_extended: bool = True) -> None:
        self.said: dict[str, bytes] = {}
        self.requests: list[str] = []
        self._late, self._is_extended = late, is_extended

    def set(self, key: str, text: str) -> None:
        self.said[key] = text.encode()

    def wait(self, keys: list[str], limit: timedelta) -> None:
        if self._late:
            raise RuntimeError("Socket Timeout")

    def check(self, keys: list[str]) -> bool:
        self.requests.append("check")
        return self.requests.count("check") > self._late

    def has_extended_api(self) -> bool:
        return self._is_extended

    def get(self, key: str) -> bytes:
        self.requests.append("get")
        return self.said.get(key, b"-")

    def multi_get(self, keys: list[str]) -> list[bytes]:
        self.requests.append("multi_get")
        return [self.said.get(key, b"-") for key in keys]


def test_that_all_are_here_is_not_read_again() -> None:
    store = Store()
    group._meet(store, "here", "", 0, 1024, lambda: False)
    assert store.requests == ["check"]


@pytest.mark.parametrize(("is_extended", "requests"), [(True, ["multi_get"]), (False, ["get"] * 3)])
def test_what_all_said_is_one_request_where_the_store_can(is_extended: bool, requests: list[str]) -> None:
    store = Store(is_extended=is_extended)
    assert group._exchange(store, "ports", "12,13", 1, 3, lambda: False) == ["", "12,13", ""]
    assert store.requests == ["check", *requests]


@pytest.mark.parametrize(
    ("size", "naps"), [(4, [0.02] * 6), (100, [0.02] * 6), (1024, [0.02, 0.04, 0.08, 0.16, 0.2, 0.2])]
)
def test_many_that_wait_look_less_often(size: int, naps: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[Any] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    group._meet(Store(late=6), "here", "", 0, size, lambda: False)
    assert slept == naps


def test_nobody_waits_for_an_epoch_that_is_over() -> None:
    with pytest.raises(TimeoutError, match="here"):
        group._meet(Store(late=1), "here", "", 0, 4, lambda: True)


def test_a_new_store_that_was_not_reached_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[Any] = []

    def connect(host: str, port: int, **_: Any) -> object:
        tries.append((host, port))
        if len(tries) == 1:
            raise RuntimeError("the connection was refused")
        return "the new one"

    torchs = SimpleNamespace(TCPStore=connect, init_process_group=lambda: None)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=torchs))
    monkeypatch.setitem(sys.modules, "torch.distributed", torchs)
    first = JobStore("the first", {})
    found = group.WorldGroup("gloo", first, rank=2, store_rank=0, timeout=timedelta(seconds=5))
    with pytest.raises(RuntimeError):
        found.use_store("127.0.0.1 4000 1", lambda: False)
    assert (found._job, found.store_text) == (first, "")
    found.use_store("127.0.0.1 4000 1", lambda: False)
    assert (found._job.store, found.store_text, tries) == ("the new one", "127.0.0.1 4000 1", [("127.0.0.1", 4000)] * 2)


class Tcp:
    """Torch's store, of whose copying nothing is known but how long it may take."""

    def __init__(self, clone: Callable[[], object]) -> None:
        self.timeout, self.port = timedelta(minutes=30), 1
        self._clone = clone

    def set_timeout(self, timeout: timedelta) -> None:
        self.timeout = timeout

    def clone(self) -> object:
        self.limit = self.timeout
        return self._clone()


class DistNetworkError(RuntimeError):
    """As torch's error of a connection."""


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Torch's, of groups: the default one has a store that cannot be copied."""

    def refuse() -> object:
        raise DistNetworkError("the client socket has timed out")

    found: dict[str, Any] = {"default": ("gloo", Tcp(refuse))}
    torchs = SimpleNamespace(
        TCPStore=Tcp,
        DistNetworkError=DistNetworkError,
        init_process_group=lambda: None,
        group=SimpleNamespace(WORLD="default"),
        distributed_c10d=SimpleNamespace(_world=SimpleNamespace(pg_map=found)),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=torchs))
    monkeypatch.setitem(sys.modules, "torch.distributed", torchs)
    return found


class Lent(JobStore):
    ended = 0

    def end(self) -> None:
        self.ended += 1


def test_torch_waits_for_ranks_of_groups_in_a_connection_that_ends_with_the_epoch(
    table: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait for half an hour; also where the epoch ends while the connection is made."""
    made: list[Lent] = []

    def lend(store: Any, limit_s: float) -> Lent:
        assert limit_s >= job_store.ANSWER_S  # no shorter than for any other request of the forming
        made.append(Lent(f"another connection to that of {store}", {}))
        if len(made) == 2:
            found.cut()
        return made[-1]

    table["default"] = "gloo", "the group"
    monkeypatch.setattr(group, "own", lend)
    found = group.WorldGroup("gloo", JobStore("the job's", {}), rank=0, store_rank=0, timeout=timedelta(seconds=5))
    found._lend_store()
    assert table["default"] == ("gloo", "another connection to that of the group")
    assert made[0].ended == 0
    found.cut()
    assert made[0].ended == 1
    found._is_cut = False  # a new epoch, in the same group
    found._lend_store()
    assert table["default"] == ("gloo", "another connection to that of the group")
    assert made[1].ended == 1


def test_a_store_whose_process_is_dead_is_not_waited_for_longer_than_the_forming_of_a_group_may_take(
    table: dict[str, Any],
) -> None:
    _, store = table["default"]
    with pytest.raises(TimeoutError, match="store did not answer"):
        job_store.own(store, group.FORM.total_seconds())
    assert store.limit <= timedelta(seconds=2.5)  # torch takes up to 2.2 times as long
    assert store.timeout == timedelta(minutes=30)


@pytest.mark.torch
def test_rank_0_that_does_not_come_is_named_by_those_that_wait_for_its_store() -> None:
    port = free_port()
    with pytest.raises(RecoveryRefused, match=f"nothing listens at 127.0.0.1:{port} within 0.2 s") as found:
        recovery.init_process_group(init_method=f"tcp://127.0.0.1:{port}", rank=1, world_size=3, start_timeout=0.2)
    verdict = found.value.verdict
    assert verdict is not None
    assert (verdict.code, verdict.culprits.ranks, found.value.is_agreed) == ("RTM009", (0,), False)


@cases(
    ("method", "rank", "size", "expected"),
    [
        ("env://", -1, -1, ("10.0.0.1", 4000, 1, 4)),
        ("env://", 2, -1, ("10.0.0.1", 4000, 2, 4)),
        ("env://?rank=3&world_size=8", -1, -1, ("10.0.0.1", 4000, 3, 8)),
        ("tcp://[::1]:5000", 2, 3, ("::1", 5000, 2, 3)),
        ("tcp://h:5000?rank=2&world_size=3", -1, -1, ("h", 5000, 2, 3)),
        # torch says what is wrong, or does it another way.
        ("tcp://h:5000?rank=2&world_size=3", 2, 3, None),
        ("tcp://h:5000?use_libuv=0", 2, 3, None),
        ("tcp://h:5000", 2, -1, None),
        ("tcp://h", 2, 3, None),
        ("tcp://h:70000", 2, 3, None),
        ("file:///tmp/x", 2, 3, None),
    ],
)
def test_where_the_job_meets_is_read_as_torch_reads_it(
    method: str, rank: int, size: int, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("MASTER_ADDR", "10.0.0.1"), ("MASTER_PORT", "4000"), ("RANK", "1"), ("WORLD_SIZE", "4")):
        monkeypatch.setenv(name, value)
    assert meeting._where(method, rank, size) == expected


@contextlib.contextmanager
def silent() -> Iterator[socket.socket]:
    """A connection to a server that takes it and never answers, as one that is stopped."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        yield client


@pytest.mark.usefixtures("table")
def test_a_request_that_is_not_answered_ends_and_the_store_counts_as_lost() -> None:
    with silent() as client:
        mine = {fd: known for fd, known in sockets().items() if fd == client.fileno()}
        job = JobStore("a store", mine)

        def ask() -> None:
            assert client.recv(1) == b""  # as torch's client: it has no limit, and reads the end
            raise DistNetworkError("failed to recv, got 0 bytes")

        with pytest.raises(TimeoutError, match=r"did not answer within 0\.05 s: stopped, or cut off"), job.within(0.05):
            ask()
        assert job.is_lost
    assert not [t for t in threading.enumerate() if t.name == "allready-store"]


@pytest.mark.usefixtures("table")
def test_a_request_that_is_answered_in_time_ends_nothing() -> None:
    with silent() as client:
        job = JobStore("a store", {fd: known for fd, known in sockets().items() if fd == client.fileno()})
        with job.within(30.0):
            pass
        client.send(b"still there")
        assert job.is_lost is False


@pytest.mark.usefixtures("table")
def test_a_store_whose_connection_breaks_counts_as_lost() -> None:
    job = JobStore("a store", {})
    with pytest.raises(DistNetworkError), job.within(30.0):
        raise DistNetworkError("connection reset by peer")
    assert job.is_lost is True


def test_a_start_that_ends_the_process_leaves_its_failure_to_the_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "RANK_FOLDER", [str(tmp_path)])
    refused = meeting._no_rank_0("nothing listens")
    for error, kept in ((None, False), (ValueError("of the script"), False), (refused, True)):
        monkeypatch.setattr(sys, "last_value", error, raising=False)
        last_failure.keep_last(rank=1, attempt="a")
        assert (tmp_path / names.AGREED).exists() is kept
    assert '"state":"absent"' in (tmp_path / names.AGREED).read_text()
