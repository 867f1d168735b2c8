"""Sends and receives are noted where the methods of a process group are called, and read back as they were made."""

import json
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from allready.evidence.flight.given import exchanges_of
from allready.live.beacon import exchanges
from allready.live.beacon.exchanges import MAX_CALLS, ExchangeNotes
from tests.cases import cases

MEMBERS = {"0": [0, 1, 2], "pair": [5, 3]}


class Tensor:
    """As much of one as is asked."""

    def numel(self) -> int:
        return 8


class Group:
    """A process group's three methods, which return what they were given."""

    group_name = "0"

    def send(self, tensors: list[Tensor], rank: int, tag: int) -> Any:
        """Of torch."""
        if tag == 99:
            raise RuntimeError("Connection closed by peer")
        return "send", len(tensors), rank, tag

    def recv(self, tensors: list[Tensor], rank: int, tag: int) -> Any:
        return "recv", len(tensors), rank, tag

    def recv_anysource(self, tensors: list[Tensor], tag: int) -> Any:
        return "recv", len(tensors), tag


@pytest.fixture
def kind() -> type[Group]:
    """Methods are exchanged for good: a class of its own for each test."""
    return type("Group", (Group,), dict(vars(Group)))


def attached(kind: type, problems: list[str] | None = None) -> ExchangeNotes:
    told = problems if problems is not None else []
    found = ExchangeNotes(lambda what, error: told.append(f"{what}: {error}"))
    found.attach(SimpleNamespace(ProcessGroup=kind, __file__="/x/torch/distributed/distributed_c10d.py"))
    return found


def test_calls_come_through_as_they_are_and_are_read_back_with_peer_tag_and_line(kind: type[Group]) -> None:
    found, group = attached(kind), kind()
    line = sys._getframe().f_lineno + 1
    assert group.send([Tensor()], 2, 7) == ("send", 1, 2, 7)
    assert group.recv([Tensor()], 1, tag=0) == ("recv", 1, 1, 0)
    assert group.recv_anysource([Tensor()], 4) == ("recv", 1, 4)
    group.group_name = "pair"
    group.send([Tensor()], 1, 0)
    with pytest.raises(RuntimeError, match="closed by peer"):
        group.send([Tensor()], 1, 99)
    assert (kind.send.__name__, kind.send.__doc__) == ("send", "Of torch.")
    read = exchanges_of(json.loads(json.dumps(found.noted(MEMBERS))))
    assert [(c.group, c.is_send, c.peer, c.tag, c.numel) for c in read.calls] == [
        ("0", True, 2, 7, 8), ("0", False, 1, 0, 8), ("0", False, -1, 4, 8), ("pair", True, 3, 0, 8),
        ("pair", True, 3, 99, 8),
    ]  # fmt: skip
    assert (read.calls[0].place[0].file, read.calls[0].place[0].line) == (__file__, line)
    assert read.made["pair", True, 3] == 2
    assert read.is_whole


def test_what_is_older_is_counted_only_and_groups_whose_members_are_not_known_are_left_out(kind: type[Group]) -> None:
    found, group = attached(kind), kind()
    for _ in range(MAX_CALLS + 3):
        group.send([Tensor()], 1, 0)
    group.group_name = "unknown"
    group.send([Tensor()], 1, 0)
    read = exchanges_of(found.noted(MEMBERS))
    assert (len(read.calls), read.made, read.is_whole) == (MAX_CALLS - 1, {("0", True, 1): MAX_CALLS + 3}, False)
    assert exchanges_of(found.noted({})) == exchanges_of(None)


def test_another_torch_costs_the_notes_and_never_the_call(kind: type[Group]) -> None:
    told: list[str] = []
    found = attached(kind, told)
    kind.group_name = property(lambda _: 1 / 0)  # type: ignore[assignment]
    assert kind().send([Tensor()], 1, 0) == ("send", 1, 1, 0)
    assert told == ["a send or receive cannot be read: division by zero"]
    assert found.noted(MEMBERS) == {"partial": True}
    assert exchanges_of(found.noted(MEMBERS)).is_partial
    attached(type("None", (), {}), told)
    assert len(told) == 1


def test_rows_that_are_none_are_passed_over() -> None:
    good = ["0", True, 1, 0, 8, 5, 0]
    rows = [good, good[:6], ["0", 1, *good[2:]], [*good[:3], "x", *good[4:]], [*good[:6], 1 << 70], None]
    noted = {
        "calls": rows,
        "places": [[["t.py", 3, "f"], ["t.py"], 5, ["t.py", 1 << 80, "f"]]],
        "made": [["0", True, 1, 9], ["0", True, 1, -2]],
    }
    read = exchanges_of(noted)
    assert [len(c.place) for c in read.calls] == [1]
    assert read.made == {("0", True, 1): 9}
    assert exchanges_of([1]) == exchanges_of({"calls": 3, "places": None, "made": {}})


def test_what_a_group_that_is_gone_made_is_not_counted_for_one_that_has_its_name_since(kind: type[Group]) -> None:
    found, first = attached(kind), kind()
    first.send([Tensor()], 1, 0)
    del first
    assert exchanges_of(found.noted(MEMBERS)).made == {("0", True, 1): 1}  # a rank at its end
    second = kind()
    second.send([Tensor()], 2, 0)
    assert exchanges_of(found.noted(MEMBERS)).made == {("0", True, 2): 1}
    assert found.noted({"1": [0, 1]}) == {}


def test_calls_of_several_threads_are_all_counted(kind: type[Group]) -> None:
    found, group = attached(kind), kind()
    group.send([Tensor()], 1, 0)
    own = next(iter(found._made))
    group.recv_anysource([Tensor()], 0)
    thread = threading.Thread(target=group.send, args=([Tensor()], 1, 0))
    thread.start()
    thread.join(10)
    assert found._made[own] == 1  # one thread writes no number of another's
    assert exchanges_of(found.noted(MEMBERS)).made == {("0", True, 1): 2, ("0", False, -1): 1}


@cases("names", [("0", "0", "0"), ("0", "1", "2")])
def test_more_kinds_or_groups_than_are_kept_are_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    monkeypatch.setattr(exchanges, "MAX_KINDS", 2)
    kind = type("Group", (Group,), dict(vars(Group)))
    found, group = attached(kind), kind()
    for peer, name in enumerate(names):
        assert "partial" not in found.noted(MEMBERS)
        group.group_name = name
        group.send([Tensor()], peer, 0)
    assert exchanges_of(found.noted(MEMBERS)).is_partial


def test_calls_from_before_the_notes_began_are_said_to_be_missing(kind: type[Group]) -> None:
    found = ExchangeNotes(lambda *_: None)
    found.attach(SimpleNamespace(ProcessGroup=kind, __file__="/x/torch/distributed/c.py", is_initialized=lambda: True))
    assert exchanges_of(found.noted(MEMBERS)).is_partial
