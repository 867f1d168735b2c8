"""Whether other hosts still answer: a refusal is an answer, and silence counts only of who has answered before."""

import json
import socket
import sys

import pytest

from allready.lab import Lab
from allready.lab.faults import LinkDown, PortDropped
from allready.live.node.reach import UNUSED_PORT, Reach, answers, others
from allready.model.live import SocketRow
from tests.live.node.nodes import until

IN_NODE = """
import json, sys
from allready.live.node.reach import answers
print(json.dumps(answers({sys.argv[2]: sys.argv[1], sys.argv[3]: sys.argv[1]})))
"""


def row(local: str, remote: str) -> SocketRow:
    return SocketRow(rank=0, pid=1, local=local, local_port=1, remote=remote, remote_port=2)


@pytest.mark.lab
def test_a_host_answers_until_its_link_is_down(lab2: Lab) -> None:
    own, other = lab2.view.address(0), lab2.view.address(1)
    absent = other.rpartition(".")[0] + ".200"

    def ask() -> dict[str, bool]:
        done = lab2.run(0, [sys.executable, "-c", IN_NODE, own, other, absent])
        assert done.returncode == 0, done.stderr
        found: dict[str, bool] = json.loads(done.stdout)
        return found

    assert ask() == {other: True, absent: False}
    with lab2.apply(LinkDown(node=1)):
        assert ask() == {other: False, absent: False}
    until(ask, lambda found: found[other])
    with lab2.apply(PortDropped(node=1, port=UNUSED_PORT)):
        assert ask()[other] is False  # a firewall looks the same: that is why it must have answered before


def test_an_open_port_is_an_answer_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert answers({"127.0.0.1": "127.0.0.1"}, port=server.getsockname()[1]) == {"127.0.0.1": True}


def test_silence_of_who_never_answered_says_nothing() -> None:
    reach = Reach()
    assert reach.judged({"10.0.0.2": False, "10.0.0.3": True}) == {"10.0.0.3": True}
    assert reach.judged({"10.0.0.2": False, "10.0.0.3": False}) == {"10.0.0.3": False}


def test_who_is_new_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[str]] = []

    def fake(wanted: dict[str, str]) -> dict[str, bool]:
        asked.append(set(wanted))
        return dict.fromkeys(wanted, True)

    monkeypatch.setattr("allready.live.node.reach.answers", fake)
    reach = Reach()
    reach.learn([row("10.0.0.1", "10.0.0.2")])
    until(lambda: reach._take() or reach._learning, lambda task: task is None)  # type: ignore[func-returns-value]
    reach.learn([row("10.0.0.1", "10.0.0.2")])
    reach.learn([row("10.0.0.1", "10.0.0.2"), row("10.0.0.1", "10.0.0.3")])
    until(lambda: len(asked), lambda count: count == 2)
    assert asked == [{"10.0.0.2"}, {"10.0.0.3"}]
    assert reach.judged({"10.0.0.2": False}) == {"10.0.0.2": False}


def test_only_other_hosts_are_asked() -> None:
    rows = [
        row("127.0.0.1", "127.0.0.1"),
        row("10.0.0.1", "10.0.0.1"),
        row("127.0.0.1", "127.0.0.2"),
        row("fe80::1", "fe80::2"),
        row("10.0.0.1", "10.0.0.2"),
        row("fd00::1", "fd00::2"),
        row("a", "nonsense"),
    ]
    assert others(rows) == {"10.0.0.2": "10.0.0.1", "fd00::2": "fd00::1"}
    many = [row("10.0.0.1", f"10.1.{n // 250}.{n % 250 + 1}") for n in range(500)]
    assert len(others(many)) == 128
