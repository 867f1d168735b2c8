"""Strangers on the master port while a check waits: it goes on, joins its real worker, and is healthy."""

import contextlib
import os
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from allready.messaging.wire import GREETING, PROTOCOL, encode
from tests.cli.processes import ROLL, Job, Node

HELLO: dict[str, Any] = {
    "protocol": PROTOCOL, "tool_version": "0", "node_rank": 1, "name": "x", "pid": 1, "num_nodes": 2,
    "nproc_per_node": 1, "job_id": "none", "master_addr": "127.0.0.1", "instance": "stranger",
}  # fmt: skip
TLS_HELLO = bytes.fromhex("16030100c2010000be0303") + bytes(183)
HTTP = b"GET / HTTP/1.1\r\nHost: gpu01:29500\r\nUser-Agent: kube-probe/1.29\r\n\r\n"
DATAGRAM = b"ALLREADY-CALL/1 "


@contextlib.contextmanager
def say(port: int, words: bytes) -> Iterator[None]:
    """Connect, say it, and stay."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        client.settimeout(5)
        with contextlib.suppress(OSError):  # node 0 may have closed the connection
            client.sendall(words)
        yield


def hello(job: Job, **changes: Any) -> bytes:
    return GREETING + encode("hello", {**HELLO, "job_id": job.mark, **changes})


def huge_hello(job: Job) -> bytes:
    payload = msgspec.json.encode(("hello", {**HELLO, "name": "x" * 10_000_000}))
    return GREETING + struct.pack(">IB", len(payload), 0) + payload


def padded(words: bytes) -> bytes:
    return words.ljust(400, b"\0")


WORDS: dict[str, Callable[[Job], bytes]] = {
    "random bytes": lambda job: os.urandom(4096),
    "an http request": lambda job: HTTP,
    "a tls hello": lambda job: TLS_HELLO,
    "nothing": lambda job: b"",
    "half a greeting": lambda job: GREETING[:5],
    "a huge length": lambda job: GREETING + b"\xff\xff\xff\xff\x00",
    "a torch store client": lambda job: struct.pack("<BI", 0, 0x3C85F7CE) + b"\x0d" + bytes(4),
    "a bomb": lambda job: GREETING + b"\x00\x00\x00\x20\x01" + bytes(32),
    "a name of 10 MB": huge_hello,
    "deep nesting": lambda job: GREETING + struct.pack(">IB", 60_000, 0) + b"[" * 60_000,
    "a hello of wrong types": lambda job: hello(job, node_rank="one", pid=None),
    "a hello that is a list": lambda job: GREETING + encode("hello", [1, 2, 3]),
    "numbers that are no numbers": lambda job: GREETING + struct.pack(">IB", 20, 0) + b'["hello",{"pid":NaN}',
}


def waiting_node_0(job: Job, *extra: str) -> Node:
    node = job.start(0, *ROLL, "--wait", "30", *extra)
    node.until_said("waiting for node 1")
    return node


def is_healthy_with_its_worker(job: Job, node_0: Node, *, expected: tuple[str, ...] = ()) -> dict[str, Any]:
    """Node 0's report, once the real worker has come."""
    assert node_0.process.poll() is None, node_0.all_words()
    worker = job.start(1, *ROLL)
    for node in (node_0, worker):
        assert node.wait(15) == 0, node.all_words()
        assert "Traceback" not in node.errors
        assert node.report["status"] == "healthy"
        assert tuple(f["fault_class"] for f in node.report["findings"] if f["severity"] != "info") == expected
    return node_0.report


def test_whatever_strangers_say_the_check_goes_on(job: Job) -> None:
    node_0 = waiting_node_0(job)
    with contextlib.ExitStack() as connected:
        for words in WORDS.values():
            connected.enter_context(say(job.port, words(job)))
        for changes in ABSURD:
            connected.enter_context(say(job.port, hello(job, **changes)))
        send_garbage(job)
        report = is_healthy_with_its_worker(job, node_0)
    assert [claim["name"] == "x" for claim in report["roll"]["claims"]] == [False, False]
    strangers = [f for f in report["findings"] if "stranger" in f["title"].lower() or f["code"].startswith("PRT")]
    assert strangers, "somebody was there, and the report says so"


@pytest.mark.slow
@pytest.mark.parametrize("words", WORDS)
def test_this_stranger_alone_harms_nothing(job: Job, words: str) -> None:
    node_0 = waiting_node_0(job)
    with say(job.port, WORDS[words](job)):
        is_healthy_with_its_worker(job, node_0)


def test_two_hundred_connections_that_stay_open_harm_nothing(job: Job) -> None:
    node_0 = waiting_node_0(job)
    with contextlib.ExitStack() as connected:
        for _ in range(200):
            connected.enter_context(say(job.port, b""))
        is_healthy_with_its_worker(job, node_0)


@pytest.mark.slow
def test_more_connections_than_descriptors_only_delay_the_worker(job: Job) -> None:
    limited = ["bash", "-c", 'ulimit -n 64; exec "$@"', "bash", *job.argv(0, *ROLL, "--wait", "40")]
    node_0 = job.start(0, argv=limited)
    node_0.until_said("waiting for node 1")
    with contextlib.ExitStack() as connected:
        for _ in range(100):
            connected.enter_context(say(job.port, b""))
        is_healthy_with_its_worker(job, node_0, expected=("ENV-LIMIT",))
    assert node_0.errors.count("a connection has to wait") == 1


ABSURD: list[dict[str, Any]] = [
    {"node_rank": -1},
    {"node_rank": 10**9},
    {"num_nodes": 10**9, "node_rank": 10**8},
    {"num_nodes": -5},
    {"num_nodes": 0},
    {"nproc_per_node": 10**12},
    {"nproc_per_node": -3},
    {"nproc_per_node": 0},
    {"waited_s": -1e300},
    {"waited_s": 1e300},
    {"pid": -1},
    {"pid": 10**30},
]


@pytest.mark.slow
def test_hellos_with_absurd_numbers_are_strangers_words(job: Job) -> None:
    node_0 = waiting_node_0(job)
    with contextlib.ExitStack() as connected:
        for changes in ABSURD:
            connected.enter_context(say(job.port, hello(job, **changes)))
        report = is_healthy_with_its_worker(job, node_0)
    assert [claim["name"] == "x" for claim in report["roll"]["claims"]] == [False, False]


@pytest.mark.parametrize(
    "changes",
    [{"node_rank": 2}, *(pytest.param(c, marks=pytest.mark.slow) for c in ({"node_rank": 0}, {"protocol": 99}))],
    ids=str,
)
def test_a_hello_that_could_be_a_nodes_is_a_clash_and_cannot_inject_anything(job: Job, changes: dict[str, Any]) -> None:
    node_0 = waiting_node_0(job)
    evil = {"name": "\x1b[2J<b onclick=alert(1)>", "master_addr": "\x1b]0;x\x07<i onclick=x>"}
    with say(job.port, hello(job, **evil, **changes)):
        assert node_0.wait(10) == 1, node_0.all_words()
    assert "Traceback" not in node_0.errors
    assert "\x1b" not in node_0.output + node_0.errors
    assert "onclick=" in node_0.output
    page = (node_0.folder / "report.html").read_text()
    assert "<b onclick" not in page
    assert "<i onclick" not in page


def test_a_hello_that_is_sent_twice_is_no_second_node_and_its_sender_may_come_back(job: Job) -> None:
    job.num_nodes = 4
    nodes = [job.start(node, *ROLL) for node in (0, 1)]
    nodes[1].until_said("joined")
    words = hello(job, node_rank=2, num_nodes=4)
    with say(job.port, words + words[len(GREETING) :] * 2):
        nodes[0].until_said("3 of 4 nodes present")
    nodes += [job.start(node, *ROLL) for node in (2, 3)]
    for node in nodes:
        assert node.wait(15) == 0, node.all_words()


@pytest.mark.slow
def test_datagrams_of_garbage_harm_nothing(job: Job) -> None:
    node_0 = waiting_node_0(job)
    send_garbage(job)
    is_healthy_with_its_worker(job, node_0)


def send_garbage(job: Job) -> None:
    """Datagrams to the master port."""
    call = {
        "job_id": job.mark,
        "node_rank": -7,
        "num_nodes": 2,
        "name": "\x1b[2J" * 50,
        "contact": "silent",
        "hears_us": None,
    }
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for words in (
            b"",
            os.urandom(1400),
            padded(DATAGRAM),
            padded(DATAGRAM + b"{}"),
            padded(DATAGRAM + b"[" * 300),
            padded(DATAGRAM + msgspec.json.encode({**call, "node_rank": 10**9})),
            padded(DATAGRAM + msgspec.json.encode(call)),
            padded(DATAGRAM + b"\xff" * 300),
        ) * 20:
            sock.sendto(words, ("127.0.0.1", job.port))
