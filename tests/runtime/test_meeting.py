"""What the members of a group tell each other before it forms."""

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from allready.runtime import group


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
    found = group.WorldGroup("gloo", "the first", rank=2, store_rank=0, timeout=timedelta(seconds=5))
    with pytest.raises(RuntimeError):
        found.use_store("127.0.0.1 4000 1")
    assert (found._store, found.store_text) == ("the first", "")
    found.use_store("127.0.0.1 4000 1")
    assert (found._store, found.store_text, tries) == ("the new one", "127.0.0.1 4000 1", [("127.0.0.1", 4000)] * 2)


class Tcp:
    """Torch's store, of whose copying nothing is known but how long it may take."""

    def __init__(self, clone: Callable[[], object]) -> None:
        self.timeout = timedelta(minutes=30)
        self._clone = clone

    def set_timeout(self, timeout: timedelta) -> None:
        self.timeout = timeout

    def clone(self) -> object:
        self.limit = self.timeout
        return self._clone()


class DistNetworkError(RuntimeError):
    """As torch's error of a connection."""


def making(store: Tcp, monkeypatch: pytest.MonkeyPatch) -> tuple[group.WorldGroup, dict[str, Any]]:
    """A group in whose table of torch's the default group has this store; and the table."""
    table: dict[str, Any] = {"default": ("gloo", store)}
    torchs = SimpleNamespace(
        TCPStore=Tcp,
        DistNetworkError=DistNetworkError,
        init_process_group=lambda: None,
        group=SimpleNamespace(WORLD="default"),
        distributed_c10d=SimpleNamespace(_world=SimpleNamespace(pg_map=table)),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=torchs))
    monkeypatch.setitem(sys.modules, "torch.distributed", torchs)
    return group.WorldGroup("gloo", store, rank=0, store_rank=0, timeout=timedelta(seconds=5)), table


def test_a_failure_that_comes_while_the_stores_copy_is_made_keeps_torch_from_waiting_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has ended what was there, and is not called again."""
    ended: list[bool] = []

    def fail() -> Tcp:
        ended.append(True)
        found.cut()
        return Tcp(fail)

    store = Tcp(fail)
    found, table = making(store, monkeypatch)
    with pytest.raises(TimeoutError, match="gone"), found.making(lambda: bool(ended)):
        pytest.fail("torch would make groups now, and wait for half an hour")
    assert table["default"] == ("gloo", store)


def test_a_store_whose_process_is_dead_is_not_waited_for_longer_than_the_forming_of_a_group_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> Tcp:
        raise DistNetworkError("the client socket has timed out")

    store = Tcp(refuse)
    found, _ = making(store, monkeypatch)
    with pytest.raises(TimeoutError, match="store did not answer"), found.making(lambda: False):
        pytest.fail("torch would wait in it")
    assert store.limit <= group.FORM / 5  # torch takes up to 2.2 times as long
    assert store.timeout == timedelta(minutes=30)
