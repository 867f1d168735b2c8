"""The RAS port: asked as NCCL's own client asks, of our ranks only, never waited for."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from allready.evidence.ras import read_ras
from allready.live.node.ras import RasAsker, address_of, parse_address
from allready.live.node.sockets import Owner, owners
from tests.clock import Stopwatch
from tests.live.node.nodes import until

SERVER = r"""
import json, os, socket, sys, time
pid, mode, delay = int(sys.argv[1]) or os.getpid(), sys.argv[2], float(sys.argv[3])
answer = {"nccl_version": "2.29.7", "timestamp": "2026-11-20 12:00:00", "communicators_count": 1, "communicators": [
    {"hash": "0xabc", "secondary_hash": "0x1:0x2", "size": 1, "ranks_count": 1, "missing_ranks_count": 0,
     "ranks": [{"rank": 0, "host": "127.0.0.1", "pid": pid, "cuda_dev": 0, "nvml_dev": 0,
                "status": {"init_state": 0, "async_error": 0}, "collective_counts": {"AllReduce": 5}}],
     "missing_ranks": []}], "ras": {"collection_time_sec": 0.1, "timeouts_count": 0}}
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
asked = 0
while True:
    peer, _ = server.accept()
    asked += 1
    if mode == "first-is-hung" and asked == 1:
        hung = peer
        continue
    data = b""
    try:
        while True:
            part = peer.recv(1024)
            if not part:
                break
            data += part
            while b"\n" in data:
                line, _, data = data.partition(b"\n")
                word = line.decode().strip().upper()
                if word.startswith("CLIENT PROTOCOL"):
                    peer.sendall(b"SERVER PROTOCOL 2\n" if mode != "http" else b"HTTP/1.1 400 Bad Request\n")
                elif word.startswith("SET FORMAT"):
                    peer.sendall(b"ERROR: Unknown command\n" if mode == "text" else b"OK\n")
                elif word.startswith("TIMEOUT"):
                    peer.sendall(b"OK\n")
                elif word == "STATUS":
                    time.sleep(delay)
                    peer.sendall(json.dumps(answer).encode())
                    raise SystemExit if mode == "once" else ConnectionError
                elif word == "VERBOSE STATUS":
                    peer.sendall(b"NCCL version 2.26.2 compiled with CUDA 12.4\nJob summary\n===========\n")
                    raise ConnectionError
    except ConnectionError:
        pass
    peer.close()
"""


@contextmanager
def server(
    monkeypatch: pytest.MonkeyPatch, mode: str = "json", *, pid: int = 0, delay_s: float = 0.0
) -> Iterator[tuple[int, dict[int, Owner]]]:
    """Something that answers like RAS: its pid, and whose its sockets are."""
    child = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(pid), mode, str(delay_s)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        monkeypatch.setattr("allready.live.node.ras.address_of", lambda _: ("127.0.0.1", port))
        yield child.pid, owners([(0, child.pid)])
    finally:
        child.kill()
        child.wait(5)
        if child.stdout is not None:
            child.stdout.close()


def ask(pids: list[int], owned: dict[int, Owner], timeout_s: float = 5.0) -> tuple[str, str | None]:
    asker = RasAsker()
    try:
        return asker.ask(pids, owned, timeout_s=timeout_s)
    finally:
        asker.close()


def test_an_answer_is_json_as_the_reader_of_saved_ones_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(monkeypatch) as (pid, owned):
        text, why = ask([pid], owned)
    assert why is None
    assert json.loads(text)["communicators_count"] == 1
    (answer,) = read_ras(text.encode(), "ras").ras
    assert answer.groups[0].positions[0].enqueued == 5


def test_an_old_ras_gives_its_long_text(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(monkeypatch, "text") as (pid, owned):
        text, why = ask([pid], owned)
    assert (text.splitlines()[0], why) == ("NCCL version 2.26.2 compiled with CUDA 12.4", None)


def test_a_hung_process_behind_the_port_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(monkeypatch, "first-is-hung") as (pid, owned):
        text, why = ask([pid], owned)
    assert why is None
    assert "0xabc" in text


def test_an_answer_of_another_job_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(monkeypatch, pid=1) as (pid, owned):
        text, why = ask([pid], owned, 8.0)
    assert text == ""
    assert why is not None
    assert "another job" in why


def test_where_a_stranger_listens_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(monkeypatch) as (pid, _):
        assert ask([pid], {}) == ("", None)


def test_another_service_at_the_port_is_no_ras(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(monkeypatch, "http") as (pid, owned):
        text, why = ask([pid], owned, 8.0)
    assert text == ""
    assert why is not None
    assert "something else" in why


@pytest.mark.jobs
def test_a_slow_answer_is_there_for_the_next_question(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(monkeypatch, delay_s=2.5) as (pid, owned):
        asker = RasAsker()
        began = Stopwatch()
        text, why = asker.ask([pid], owned, timeout_s=0.2)
        assert began.s < 2.0
        assert text == ""
        assert why is not None
        text, why = until(lambda: asker.ask([pid], owned, timeout_s=0.2), lambda found: bool(found[0]), timeout_s=10.0)
        assert why is None
        asker.close()


def test_addresses_are_those_that_nccl_takes() -> None:
    assert parse_address("localhost:28028") == ("localhost", 28028)
    assert parse_address("[::1]:5") == ("::1", 5)
    assert parse_address("10.0.0.1:99999") is None
    assert parse_address("nonsense") is None
    assert parse_address(":5") == ("localhost", 5)


def test_a_ranks_own_address_counts() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], env=os.environ | {"NCCL_RAS_ADDR": "127.0.0.1:4711"}
    )
    try:
        assert until(lambda: address_of(child.pid), lambda a: a == ("127.0.0.1", 4711))
        assert address_of(os.getpid())[1] == int(os.environ.get("NCCL_RAS_ADDR", "x:28028").rpartition(":")[2])
    finally:
        child.kill()
        child.wait(5)
