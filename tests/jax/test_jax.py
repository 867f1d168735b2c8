"""The part for JAX programs: real JAX processes, and the roll call without JAX."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import allready
from allready.errors import UsageError
from allready.jax.roll_call import meet
from allready.launch.jax_rendezvous import GiveUpError, Orders
from tests.clock import Deadline

pytestmark = pytest.mark.jobs

LIMIT_S = 90.0
Steps = Sequence[tuple[Any, ...]]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


class Jax:
    """Processes that have ended when the test has."""

    def __init__(self, folder: Path, size: int, *, ranks: Sequence[int] | None = None, **plan: Any) -> None:
        self._files = [folder / f"{n}.jsonl" for n in range(size)]
        plan = {"size": size, "port": free_port(), "steps": {}, **plan}
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        for rank in range(size) if ranks is None else ranks:
            command = [sys.executable, str(Path(__file__).with_name("rank.py")), json.dumps({**plan, "rank": rank})]
            with self._files[rank].open("w") as out, self._files[rank].with_suffix(".err").open("w") as err:
                self.processes[rank] = subprocess.Popen(
                    command, stdout=out, stderr=err, env=environment, start_new_session=True
                )

    def events(self, rank: int) -> list[dict[str, Any]]:
        lines = self._files[rank].read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def of(self, rank: int, kind: str) -> list[dict[str, Any]]:
        return [e for e in self.events(rank) if e["event"] == kind]

    def errors(self, rank: int) -> str:
        return self._files[rank].with_suffix(".err").read_text()

    def wait(self, *ranks: int) -> None:
        deadline = Deadline(LIMIT_S)
        for rank in ranks or tuple(self.processes):
            while self.processes[rank].poll() is None:
                assert not deadline.passed(), (
                    f"rank {rank} did not end: {self.events(rank)} {self.errors(rank)[-2000:]}"
                )
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.processes[rank].wait(0.1)

    def wait_for(self, rank: int, kind: str, num: int = 1) -> None:
        deadline = Deadline(LIMIT_S)
        while len(self.of(rank, kind)) < num:
            has_ended = self.processes[rank].poll() is not None and len(self.of(rank, kind)) < num
            assert not has_ended, f"{self.events(rank)} {self.errors(rank)[-2000:]}"
            assert not deadline.passed(), f"{self.events(rank)} {self.errors(rank)[-2000:]}"
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.processes[rank].wait(0.05)


@contextlib.contextmanager
def jax_job(folder: Path, size: int, **plan: Any) -> Iterator[Jax]:
    job = Jax(folder, size, **plan)
    try:
        yield job
    finally:
        for process in job.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait(20)


@pytest.mark.slow
def test_a_barrier_names_who_did_not_come_and_the_job_goes_on(tmp_path: Path) -> None:
    """Late, stopped, and only some of the processes; all that come have the same verdict."""
    come: Steps = [
        ("barrier", "begin", 60),
        ("barrier", "evaluation", 1),
        ("barrier", "evaluation", 60),
        ("barrier", "last", 1),
        ("barrier", "end", 60),
    ]
    late = [come[0], ("sleep", 5), *come[1:]]
    pair = ("barrier", "pair", 60, 0, 2)
    stopped = [*come[:3], pair, ("stop",), *come[3:]]
    with jax_job(tmp_path, 3, steps={"0": [*come[:3], pair, *come[3:]], "1": late, "2": stopped}) as job:
        job.wait_for(0, "barrier failed", 2)
        os.kill(job.processes[2].pid, signal.SIGCONT)
        job.wait()
        for rank in range(3):
            assert [e["name"] for e in job.of(rank, "passed") if e["name"] != "pair"] == ["begin", "evaluation", "end"]
            evaluation, last = job.of(rank, "barrier failed")
            assert (evaluation["code"], evaluation["culprits"]) == ("RTM005", [1]), evaluation
            assert (last["code"], last["culprits"]) == ("RTM003", [2]), last
            assert evaluation["text"] == job.of(0, "barrier failed")[0]["text"]
            assert last["text"] == job.of(0, "barrier failed")[1]["text"]
        assert "barrier evaluation #1" in job.of(0, "barrier failed")[0]["text"]
        assert job.of(1, "barrier failed")[0]["took_s"] < job.of(0, "barrier failed")[0]["took_s"]
        assert {rank: bool(job.of(rank, "done")) for rank in range(3)} == {0: True, 1: True, 2: True}


@pytest.mark.slow
def test_who_does_not_come_to_the_start_is_named(tmp_path: Path) -> None:
    with jax_job(tmp_path, 3, ranks=[0, 1], attempts=2, timeout_s=3) as job:
        job.wait()
        for rank in (0, 1):
            (end,) = job.events(rank)
            assert (end["event"], end["missing"]) == ("failed", [2]), end
            assert "process 2 is missing, 2 of 3 are here after 2 attempts" in end["text"]
            assert "attempt 1 of 2: process 2 is missing" in job.errors(rank)


def test_a_late_process_and_a_process_0_that_does_not_come(tmp_path: Path) -> None:
    """The reduced form of the two above."""
    (tmp_path / "lone").mkdir()
    end_of_both: Steps = [("barrier", "eval", 0.1), ("barrier", "end", 60)]
    steps = {"0": end_of_both, "1": [("sleep", 2.5), *end_of_both]}
    with (
        jax_job(tmp_path / "lone", 2, ranks=[1], attempts=1, timeout_s=0.3) as lone,
        jax_job(tmp_path, 2, steps=steps) as job,
    ):
        lone.wait()
        (end,) = lone.events(1)
        assert (end["event"], end["missing"]) == ("failed", [0]), end
        assert "process 0: nothing listens at 127.0.0.1:" in end["text"]
        job.wait()
        (one,), (other,) = (job.of(rank, "barrier failed") for rank in (0, 1))
        assert (one["code"], one["culprits"], one["text"]) == ("RTM005", [1], other["text"]), one
        assert f"pid {job.processes[1].pid}) is alive" in one["text"]


@pytest.mark.slow
def test_the_devices_of_the_living(tmp_path: Path) -> None:
    live: Steps = [("barrier", "begin", 60), ("live", 2), ("barrier", "after", 60, 0, 2)]
    more = {"recoverable": True, "heartbeat_timeout_seconds": 10}
    # Process 0 has the service, which must have answered process 2 before it ends.
    steps = {"0": [*live, ("sleep", 1)], "1": [live[0], ("live", 3), ("die",)], "2": live}
    with jax_job(tmp_path, 3, more=more, steps=steps) as job:
        job.wait(0, 2)
        for rank in (0, 2):
            assert job.of(rank, "live") == [{"event": "live", "processes": [0, 2], "of": 3}], job.errors(rank)[-1000:]
            assert all(e["processes"] == [1] for e in job.of(rank, "lost"))
            assert "not alive any more: process 1" in job.errors(rank)
            assert job.of(rank, "passed")[-1]["name"] == "after"


# The roll call, without JAX


def orders(port: int, process: int, size: int, **more: Any) -> Orders:
    given: Mapping[str, Any] = {"attempts": 2, "timeout_s": 30.0, "backoff": (0.1, 0.1, 0.0), **more}
    return Orders(process=process, num_processes=size, address=f"127.0.0.1:{port}", run_dir="", **given)


def test_the_roll_call_outlasts_strangers_and_a_port_that_is_held() -> None:
    """A program that ends soon holds the port; others connect and talk nonsense, or say nothing."""
    holder = socket.create_server(("127.0.0.1", 0))
    port = holder.getsockname()[1]
    with ThreadPoolExecutor(3) as pool, contextlib.ExitStack() as opened:
        first = pool.submit(meet, orders(port, 0, 2))
        with pytest.raises(TimeoutError):
            first.result(0.3)
        holder.close()
        deadline = Deadline(20.0)
        for words in (b"GET / HTTP/1.1\r\n\r\n", b'{"process": -1, "num_processes": 2}\n', b"\xff" * 9000, b""):
            while True:
                try:
                    stranger = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
                    break
                except ConnectionRefusedError:
                    assert not deadline.passed()
            with contextlib.suppress(OSError):
                stranger.sendall(words)
        assert pool.submit(meet, orders(port, 1, 2)).result(30) == (f"127.0.0.1:{port}", 0)
        assert first.result(30) == (f"127.0.0.1:{port}", 0)
    socket.create_server(("127.0.0.1", port)).close()  # it is JAX's now
    assert not [t for t in threading.enumerate() if t.name == "allready-roll-call"]


def test_the_roll_call_says_what_is_wrong() -> None:
    """(orders of each process) -> (what each gets, who it misses)."""
    missing = ("process 2 is missing, 2 of 3", (2,))
    twice = "there are two processes 1 (127.0.0.1 and 127.0.0.1)"
    four = "process 1 (127.0.0.1) was given 4 processes, process 0 2"
    table: list[tuple[str, list[tuple[int, int]], list[tuple[str, tuple[int, ...]]]]] = [
        ("one is missing", [(0, 3), (1, 3)], [missing, missing]),
        ("one is there twice", [(0, 3), (1, 3), (1, 3)], [(twice, (2,)), ("process", ()), ("process", ())]),
        ("another number", [(0, 2), (1, 4)], [(four, (1,)), (four, ())]),
        ("process 0 is missing", [(1, 2)], [("process 0: nothing listens at 127.0.0.1:", (0,))]),
    ]
    wrong = []
    with ThreadPoolExecutor(16) as pool:
        calls = []
        for name, given, expected in table:
            port = free_port()
            calls += [
                (name, words, pool.submit(meet, orders(port, n, size, attempts=1, timeout_s=1.0)))
                for (n, size), words in zip(given, expected, strict=True)
            ]
        for name, (text, absent), call in calls:
            error = call.exception(30)
            is_right = isinstance(error, GiveUpError) and text in str(error)
            if not is_right or (absent and getattr(error, "missing", None) != absent):
                wrong.append((name, text, error))
    assert not wrong, wrong


@contextlib.contextmanager
def process_0(port: int, size: int) -> Iterator[subprocess.Popen[bytes]]:
    """The roll call of process 0 in a process of its own."""
    code = (
        "import sys; from tests.jax.test_jax import meet, orders; print('up', flush=True);"
        f"meet(orders({port}, 0, {size}))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def wait_until_it_listens(port: int) -> None:
    deadline = Deadline(20.0)
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        assert not deadline.passed()


def test_a_process_0_that_is_started_again_is_found() -> None:
    port = free_port()
    with ThreadPoolExecutor(3) as pool:
        with process_0(port, 3):
            wait_until_it_listens(port)
            waiting = pool.submit(meet, orders(port, 1, 3))
            with pytest.raises(TimeoutError):
                waiting.result(0.5)
        others = [pool.submit(meet, orders(port, n, 3)) for n in (0, 2)]
        assert [call.result(30)[0] for call in (waiting, *others)] == [f"127.0.0.1:{port}"] * 3


def test_an_interrupt_ends_the_roll_call_and_frees_the_port() -> None:
    port = free_port()
    with process_0(port, 2) as child:
        wait_until_it_listens(port)
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=30)
    assert said.endswith(b"KeyboardInterrupt\n"), said
    socket.create_server(("127.0.0.1", port)).close()


def test_another_program_answers_on_the_coordinators_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(2) as pool:

        def greet() -> None:
            with contextlib.suppress(OSError):
                while True:
                    talk, _ = other.accept()
                    talk.sendall(b"SSH-2.0-OpenSSH_9.6")
                    talk.close()

        pool.submit(greet)
        error = pool.submit(meet, orders(other.getsockname()[1], 1, 2, attempts=1, timeout_s=0.2)).exception(30)
        other.shutdown(socket.SHUT_RDWR)
    assert isinstance(error, GiveUpError)
    assert "another program answers" in str(error)
    assert error.missing == (0,)


def test_what_cannot_work_is_said() -> None:
    for given in ({"attempts": 0}, {"timeout": 0}):
        with pytest.raises(UsageError):
            allready.jax.initialize("127.0.0.1:1", 1, 0, **given)
    with pytest.raises(UsageError, match="initialize first"):
        allready.jax.barrier("x")
