"""The conversation with an agent: whatever answers, no rank hangs or falls over."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from allready.live.run_paths import socket_address
from allready.live.watch import attach
from allready.live.watch.attach import Attachment, NotAnsweringError, about, is_alive, jobs
from allready.live.watch.state import WatchedJob
from allready.proc.process import read_stat
from tests.cases import cases
from tests.clock import Stopwatch

ABOUT = {
    "source": "allready", "pid": os.getpid(), "job_id": "j", "node_rank": None, "num_nodes": 2, "master": "",
    "name": "n", "report_dir": "/r", "started_s": 1.0, "command": ["t.py"], "framework": "torch",
}  # fmt: skip


@contextmanager
def agent(folder: Path, answer: bytes, *, then_close: bool = True) -> Iterator[Attachment]:
    """Something at the socket that says `answer` to all ranks."""
    server = socket.socket(socket.AF_UNIX)
    with socket_address(folder, attach.SOCKET) as address:
        server.bind(address)
    server.listen(4)
    server.settimeout(10)
    ended = threading.Event()

    def serve() -> None:
        with server:
            peer, _ = server.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(answer)
                if not then_close:
                    ended.wait(10)

    thread = threading.Thread(target=serve)
    thread.start()
    one = Attachment(WatchedJob(source="allready", job_id="j", pid=os.getpid(), place=str(folder)))
    try:
        yield one
    finally:
        one.close()
        ended.set()
        thread.join(10)


@cases(
    "answer",
    [
        b"", b"\n", b"not json\n", b"[]\n", b"null\n", b'{"statuses": 3}\n', b"[" * 100_000 + b"\n", b"{}" * 10,
        b'{"statuses": [], "report": null, "now_s": "x"}\n', b'{"error": "\x1b[31m"}\n', b"\xff\xfe\n",
        b'{"statuses": [{"node_rank": 0, "ranks": [{"rank": "0"}]}], "report": null, "now_s": 1}\n',
    ],
)  # fmt: skip
def test_a_hostile_answer_is_a_message(tmp_path: Path, answer: bytes) -> None:
    with agent(tmp_path, answer) as one, pytest.raises(NotAnsweringError, match="agent"):
        one.read()


def test_an_answer_that_drips_or_never_ends_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach, "ANSWER_S", 0.3)
    began = Stopwatch()
    with agent(tmp_path, b'{"st', then_close=False) as one, pytest.raises(NotAnsweringError, match="timed out"):
        one.read()
    assert began.s < 5.0
    monkeypatch.setattr(attach, "LARGEST_ANSWER_BYTES", 1000)
    (tmp_path / "control.sock").unlink()
    with agent(tmp_path, b"x" * 5000) as one, pytest.raises(NotAnsweringError, match="no end"):
        one.read()


def test_a_good_answer_waits_for_the_other_nodes_only_so_long(tmp_path: Path) -> None:
    body = json.dumps({"statuses": [], "report": None, "now_s": 5.0}).encode() + b"\n"
    with agent(tmp_path, body) as one:
        state = one.read(wait_for_all_s=60.0)  # no rank runs yet: there is nothing to wait for
    assert [note.key for note in state.notes] == ["no_ranks"]


def test_a_path_too_long_for_a_socket_works_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    body = json.dumps({"statuses": [], "report": None, "now_s": 5.0}).encode() + b"\n"
    with agent(folder, body) as one:
        assert one.read().now_s == 5.0


def folder_with(parent: Path, said: object) -> Path:
    folder = parent / "allready-x"
    folder.mkdir(exist_ok=True)
    (folder / "job.json").write_text(said if isinstance(said, str) else json.dumps(said))
    return folder


def of_this_process() -> dict[str, Any]:
    """The tests run in another process than the one that has read this file."""
    own = read_stat(os.getpid())
    assert own is not None
    return ABOUT | {"pid": os.getpid(), "start_ticks": own.start_ticks}


def test_a_folder_of_an_agent_that_is_gone_is_no_job(tmp_path: Path) -> None:
    own = of_this_process()
    folder = folder_with(tmp_path, own)
    found = about(folder)
    assert found is not None
    assert (found.node_rank, found.master, found.has_diagnosis) == (None, "", True)
    # The same number, another process.
    assert about(folder_with(tmp_path, own | {"start_ticks": own["start_ticks"] - 1})) is None
    # No rank listens at the socket any more.
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(folder / "control.sock"))
    left.close()
    folder_with(tmp_path, own)
    assert about(folder) is None
    assert not is_alive(found)


@cases(
    "said",
    ["", "{}", "[1]", "[" * 100_000, json.dumps(ABOUT | {"pid": "x"}), json.dumps(ABOUT | {"command": 3}),
     json.dumps(ABOUT | {"started_s": "soon"}), json.dumps(ABOUT).replace("null", "1e999")],
)  # fmt: skip
def test_a_broken_description_is_no_job(tmp_path: Path, said: str) -> None:
    assert about(folder_with(tmp_path, said)) is None


def test_links_pipes_and_other_peoples_folders_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = of_this_process()
    folder = folder_with(tmp_path, own)
    (tmp_path / "allready-link").symlink_to(folder)
    assert about(tmp_path / "allready-link") is None
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert about(folder) is None
    monkeypatch.undo()
    (folder / "job.json").unlink()
    os.mkfifo(folder / "job.json")
    began = Stopwatch()
    assert about(folder) is None
    assert began.s < 2.0


def test_finds_run_folders_newest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = of_this_process()
    folders = []
    for number in range(2):
        parent = tmp_path / str(number)
        parent.mkdir()
        folders.append(folder_with(parent, own | {"started_s": float(number)}))
    monkeypatch.setattr("allready.live.run_paths.run_dirs", lambda: tuple(folders))
    assert [job.started_s for job in jobs()] == [1.0, 0.0]
