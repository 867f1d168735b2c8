"""The master port is another process's: who, since when, and which class of fault, on node 0 and as a worker sees
it."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import ROLL, Job, eventually, listeners, plain_environment

HTTP = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port={port}, bind='127.0.0.1')"
SILENT = (
    "import socket; s = socket.create_server(('127.0.0.1', {port})); kept = []\nwhile True: kept.append(s.accept())"
)
STORE = (
    "import sys, torch.distributed as d; s = d.TCPStore('127.0.0.1', {port}, is_master=True, wait_for_workers=False)\n"
    "sys.stdin.read()"
)


@contextlib.contextmanager
def program(code: str, job: Job) -> Iterator[int]:
    """A process that holds the job's port; its pid."""
    holder = subprocess.Popen(
        [sys.executable, "-c", code.format(port=job.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=job.folder,
        env=plain_environment(),
        start_new_session=True,
    )
    try:
        eventually(lambda: bool(listeners(job.port)), within_s=30, what=lambda: "the holder does not listen")
        yield holder.pid
    finally:
        holder.kill()
        holder.communicate()


@contextlib.contextmanager
def an_earlier_check(job: Job, *extra: str) -> Iterator[int]:
    (job.folder / "earlier").mkdir()
    earlier = Job(job.folder / "earlier", num_nodes=3, port=job.port)
    with earlier:
        node = earlier.start(0, *ROLL, *extra)
        eventually(lambda: bool(listeners(job.port)), within_s=30, what=node.all_words)
        try:
            yield node.pid
        finally:
            node.process.terminate()
            node.wait(5)


def taken_by_http(job: Job) -> "contextlib.AbstractContextManager[int]":
    return program(HTTP, job)


def taken_by_a_silent_listener(job: Job) -> "contextlib.AbstractContextManager[int]":
    return program(SILENT, job)


def taken_by_a_torch_store(job: Job) -> "contextlib.AbstractContextManager[int]":
    return program(STORE, job)


def taken_by_another_job(job: Job) -> "contextlib.AbstractContextManager[int]":
    return an_earlier_check(job, "--job-id", "other")


def taken_by_the_same_job(job: Job) -> "contextlib.AbstractContextManager[int]":
    return an_earlier_check(job, "--job-id", job.mark)


Holder = Callable[[Job], "contextlib.AbstractContextManager[int]"]
CLASS: dict[Holder, str] = {
    taken_by_http: "START-PATH",
    taken_by_a_silent_listener: "START-PATH",
    taken_by_a_torch_store: "START-ABSENT",
    taken_by_another_job: "START-ABSENT",
}


def some(table: Iterable[Holder], *by_default: Holder) -> list[Any]:
    """All of them, most only in the slow run: each takes as long as a port is waited for."""
    return [pytest.param(t, id=t.__name__, marks=() if t in by_default else pytest.mark.slow) for t in table]


@pytest.mark.parametrize("taken", some(CLASS, taken_by_another_job))
def test_node_0_names_who_holds_its_port(job: Job, taken: Holder) -> None:
    with taken(job) as pid:
        node = job.start(0, *ROLL)
        assert node.wait(60) == 1, node.all_words()
        verdict = node.report["verdict"]
        assert verdict["fault_class"] == CLASS[taken]
        assert verdict["culprits"]["nodes"] == [0]
        assert f"pid {pid}" in verdict["sentence"]
        assert "started=20" in verdict["sentence"], "since when it has been there"
        assert f"kill {pid}" in verdict["remedy"]
        assert verdict["detect_s"] < 5.0
        assert [line for line in node.errors.splitlines() if f"port {job.port} is in use (pid {pid})" in line]


def test_a_second_node_0_of_the_same_job_on_this_machine_is_a_rank_given_twice(job: Job) -> None:
    with taken_by_the_same_job(job) as pid:
        node = job.start(0, *ROLL, "--nnodes", "3")
        assert node.wait(60) == 1, node.all_words()
        verdict = node.report["verdict"]
        assert (verdict["code"], verdict["fault_class"]) == ("JOB003", "ENV-MISMATCH")
        assert verdict["culprits"]["nodes"] == [0]
        assert f"pid {pid}" in verdict["sentence"]
        assert f"pid {node.pid}" in verdict["sentence"]
        assert verdict["detect_s"] < 5.0


SEEN_BY_A_WORKER: dict[Holder, tuple[str, str]] = {
    taken_by_http: ("START-PATH", "a http service"),
    taken_by_a_silent_listener: ("START-PATH", "a silent service"),
    taken_by_a_torch_store: ("START-ABSENT", "torch-store"),
    taken_by_another_job: ("ENV-MISMATCH", "nodes at the master port have different job ids"),
}


@pytest.mark.parametrize("taken", some(SEEN_BY_A_WORKER, taken_by_another_job))
def test_a_worker_says_what_it_met_at_the_master_port(job: Job, taken: Holder) -> None:
    with taken(job):
        node = job.start(1, *ROLL, "--wait", "6")
        assert node.wait(60) == 1, node.all_words()
        verdict = node.report["verdict"]
        fault_class, words = SEEN_BY_A_WORKER[taken]
        assert verdict["fault_class"] == fault_class
        assert words in verdict["sentence"]
        assert verdict["detect_s"] < 5.0
        absent = [f for f in node.findings("START-ABSENT") if f["culprits"]["nodes"] == [2]]
        assert not absent, "the other job's third node is not missing here"


def test_the_port_is_taken_as_soon_as_its_holder_ends(job: Job) -> None:
    with taken_by_a_silent_listener(job):
        nodes = job.start_all(*ROLL)
        nodes[0].until_said("is in use")
    for node in nodes:
        assert node.wait(60) == 0, node.all_words()


NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]


def test_a_port_that_needs_root_is_said_at_once(job: Job) -> None:
    first_free = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    if os.geteuid() != 0 or first_free <= 81 or shutil.which("setpriv") is None:
        pytest.skip("needs root, setpriv and privileged ports")
    if subprocess.run([*NOBODY, sys.executable, "-c", "import allready"], capture_output=True, check=False).returncode:
        pytest.skip("an unprivileged user cannot run this Python")
    job.port = 81
    node = job.start(0, argv=[*NOBODY, *job.argv(0, *ROLL, report=False)])
    assert node.wait(4) == 1, node.all_words()
    assert "EACCES" in node.output
