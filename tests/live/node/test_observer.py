"""The whole observer: quick with many ranks, nothing left behind, and robust against what it is given."""

import contextlib
import os
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allready.errors import DeadlineExceeded
from allready.live import run_paths
from allready.live.beacon import names
from allready.live.beacon.cell import BeaconCell
from allready.live.beacon.payload import encode
from allready.live.node.family import role_of
from allready.live.node.handle import RankHandle
from allready.live.node.observer import DeadlineLock, NodeObserver
from allready.live.node.rank import SILENT_BEACON_S
from allready.live.node.save_evidence import keep
from allready.live.node.tails import newest, tail
from allready.messaging.channel import convert
from allready.model import ProcessState
from allready.model.live import NodeEvidence, NodeStatus, RankEvidence, RankStatus, SocketRow
from allready.model.process import end_of
from allready.proc.process import ProcessId
from tests.clock import Stopwatch
from tests.live.node.nodes import SLEEPS, Node, until

MakeNode = Callable[..., Node]
SLEEP = ["sleep", "600"]


def descriptors() -> set[str]:
    found = set()
    for fd in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):
            found.add(f"{fd.name} {fd.readlink()}")
    return {f for f in found if "/proc/" not in f}


def test_fifty_ranks_are_looked_at_and_gathered_quickly(make_node: MakeNode) -> None:
    node = make_node([], commands=[SLEEP] * 50)
    node.look()
    quick = []
    for _ in range(6):
        began = time.thread_time()
        status = node.look()
        quick.append(time.thread_time() - began)
        time.sleep(0.1)
    assert len(status.ranks) == 50
    assert min(quick) < 50 * 0.002  # of CPU time: others use this machine too
    gathering = Stopwatch()
    evidence = node.observer.gather(1)
    assert gathering.s < 6.0
    assert len(evidence.ranks) == 50


def test_nothing_is_left_after_closing(tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    before = descriptors()
    with Node(tmp_path, [SLEEPS, SLEEPS]) as node:
        node.look()
        node.observer.gather(1)
        node.observer._pauses.note(ProcessId(node.processes[0].pid, 0))
    assert descriptors() == before
    left = until(lambda: set(threading.enumerate()) - threads, lambda found: not found, timeout_s=5.0)
    assert left == set()
    node.observer.close()


def test_a_new_attempt_forgets_the_old_one(make_node: MakeNode) -> None:
    node = make_node([SLEEPS, SLEEPS])
    node.look()
    followed = [process.pid for process in node.processes]
    handle = RankHandle(rank=5, local_rank=0, pid=followed[1])
    node.observer.set_ranks({5: handle}, 1)
    status = node.look()
    assert (status.attempt, [r.rank for r in status.ranks]) == (1, [5])
    node.observer.note_end(end_of(1, None, rank=0, time_s=1.0))  # a late word on a rank of the old one
    assert node.look().ranks[0].exit_code is None


def test_the_last_lines_of_a_rank_that_has_ended_are_waited_for(make_node: MakeNode) -> None:
    node = make_node([SLEEPS, SLEEPS])

    def flush(timeout_s: float) -> bool:
        assert timeout_s > 0
        with node.log(1).open("a") as log:
            log.write("ValueError: bad shard\n")
        return True

    assert node.observer.gather(1, flush=flush).ranks[1].log_tail == ""  # they print nothing more: nothing to wait for
    node.processes[1].kill()
    node.processes[1].wait(10)
    until(lambda: node.rank(1), lambda rank: rank.is_gone)
    assert node.observer.gather(2, flush=flush).ranks[1].log_tail == "ValueError: bad shard\n"
    evidence = node.observer.gather(3, flush=lambda timeout_s: False)
    assert any("last lines" in problem for problem in evidence.problems)


def test_what_is_sent_arrives_as_it_was(make_node: MakeNode) -> None:
    node = make_node([SLEEPS])
    evidence = node.observer.gather(3)
    assert convert(msgspec.json.decode(msgspec.json.encode(evidence)), NodeEvidence) == evidence


def test_before_any_rank_there_is_nothing_to_see(tmp_path: Path) -> None:
    observer = NodeObserver(node_rank=2, name="n2", run_dir=tmp_path)
    try:
        status = observer.sample(5.0)
        assert (status.node_rank, status.name, status.time_s, status.ranks) == (2, "n2", 5.0, ())
        assert observer.gather(1, deadline_s=0.3).ranks == ()
        assert not observer.changed()
    finally:
        observer.close()


@pytest.mark.parametrize("is_there", [True, False])
def test_what_a_beacon_said_whose_thread_is_gone_is_of_the_past(make_node: MakeNode, is_there: bool) -> None:
    """It died, or the script has become another program by `os.execv`: that it is silent says nothing of the GIL."""
    node = make_node([SLEEPS])
    pid = node.processes[0].pid
    with pytest.MonkeyPatch.context() as as_the_rank:
        as_the_rank.setattr(os, "getpid", lambda: pid)
        cell = BeaconCell(str(run_paths.rank_dir(node.run_dir, 0) / names.CELL))
    now_s = time.time()
    seen: dict[str, Any] = {"at_s": now_s, "site_since_s": now_s, "visit_since_s": now_s, "stack_id": 1, "ring_s": None}
    words: dict[str, Any] = {
        "phase": "computing",
        "site": "train.py:3 step",
        "framework": "",
        "problems": (),
        "groups": (),
    }
    cell.write(encode(**seen, **words, most_bytes=4096))
    cell.set_thread(pid if is_there else 1 << 22)
    cell.heartbeat()
    (run_paths.rank_dir(node.run_dir, 0) / names.RINGS[0]).write_bytes(b'{"entries": []}')
    until(node.look, lambda s: s.ranks[0].site == "train.py:3 step")
    time.sleep(SILENT_BEACON_S)
    rank = node.look().ranks[0]
    assert (rank.site, rank.heartbeat_age_s is not None) == (("train.py:3 step", True) if is_there else ("", False))
    assert rank.has_lost_beacon == (not is_there)
    evidence = node.observer.gather(1)
    assert evidence.ranks[0].ring == ('{"entries": []}' if is_there else "")
    assert any("from before" in problem for problem in evidence.problems) == (not is_there)


def test_a_cell_full_of_nonsense_is_no_harm(make_node: MakeNode) -> None:
    node = make_node([SLEEPS])
    folder = run_paths.rank_dir(node.run_dir, 0)
    (folder / names.CELL).write_bytes(os.urandom(8192))
    (folder / names.RINGS[0]).write_bytes(b'{"entries": [{"')
    status = until(node.look, lambda s: bool(s.links))
    assert (status.ranks[0].heartbeat_age_s, status.ranks[0].phase, status.pace) == (None, "unknown", ())
    evidence = node.observer.gather(1)
    assert evidence.ranks[0].ring == '{"entries": [{"'


def test_an_end_that_a_gathering_saw_is_still_news_for_the_next_look(make_node: MakeNode) -> None:
    node = make_node([SLEEPS])
    node.look()
    node.processes[0].kill()
    until(lambda: node.observer.gather(1, deadline_s=0.3), lambda e: e.ranks[0].status.process_state == "killed")
    node.look()
    assert node.observer.changed()
    node.look()
    assert not node.observer.changed()


def test_what_hangs_elsewhere_does_not_hang_the_caller() -> None:
    lock = DeadlineLock("a look")
    with lock.held(1.0), pytest.raises(DeadlineExceeded, match="a look"), lock.held(0.05):
        pass
    with lock.held(0.05):
        pass


def test_roles_are_found_in_commands() -> None:
    rank = "python -u main.py train.py --lr 1"

    def role(command: str, name: str = "python", parent: str = rank, parent_role: str = "") -> str:
        return role_of(command, name, parent_command=parent, parent_role=parent_role)

    assert role(rank) == "loader"
    assert role("x", "pt_data_worker") == "loader"
    spawned = "python -c from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)"
    assert role(spawned) == "loader"
    assert role("python -c from multiprocessing.resource_tracker import main;main(4)") == "other"
    assert role("python -m torch._inductor.compile_worker --workers=2") == "compiler"
    assert role("python /x/torch/_inductor/compile_worker/__main__.py", parent_role="") == "compiler"
    assert role("/usr/bin/x86_64-linux-gnu-g++-12 -O2 a.cpp") == "compiler"
    assert role("/usr/local/cuda/bin/ptxas a.ptx") == "compiler"
    assert role("python w.py", parent="python w.py", parent_role="compiler") == "compiler"
    assert role("git status") == "other"
    assert role("git status", parent="git status", parent_role="other") == "other"
    assert role("") == "other"


def test_the_end_of_a_log_is_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "out.log"
    log.write_bytes(b"first line\n" * 10 + b"caf\xe9\nlast")
    assert tail(log, most_bytes=20) == "first line\ncaf\ufffd\nlast".removeprefix("first line\n")
    assert tail(log).startswith("first line\n")
    assert tail(log, start=11, stop=22) == "first line\n"
    assert tail(tmp_path) == ""
    assert tail(tmp_path / "none") == ""
    assert tail(None) == ""
    os.mkfifo(tmp_path / "pipe")
    assert tail(tmp_path / "pipe") == ""


def test_the_newest_file_of_a_pattern_is_taken(tmp_path: Path) -> None:
    for name, at in (("nccl.a.1.log", 100), ("nccl.a.2.log", 200), ("nccl.a.3.log", 50)):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (at, at))
    assert newest(str(tmp_path / "nccl.*.log")) == tmp_path / "nccl.a.2.log"
    assert newest(str(tmp_path / "other.*")) is None
    assert newest("") is None
    assert newest(str(tmp_path / "nccl.*.log"), since_s=200) == tmp_path / "nccl.a.2.log"
    assert newest(str(tmp_path / "nccl.*.log"), since_s=200.1) is None


def test_ends_of_logs_are_kept_only_where_the_logs_are_not(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node(["print('a line')", SLEEPS])
    evidence = until(lambda: node.observer.gather(1), lambda e: "a line" in e.ranks[0].log_tail)
    near, far = tmp_path / "evidence0/node0", tmp_path / "some/where/else/node0"
    node.observer.keep(evidence, near)
    node.observer.keep(evidence, far)
    assert not (near / "rank0/evidence/out.tail.log").exists()
    assert (far / "rank0/evidence/out.tail.log").read_text() == "a line\n"


def test_closing_does_not_wait_for_a_call_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allready.live.node.observer.GATHERING_S", 0.1)
    monkeypatch.setattr("allready.live.node.observer.LOCK_S", 0.1)
    observer = NodeObserver(node_rank=0, name="n", run_dir=tmp_path)
    with observer._lock.held(1.0), observer._gathering.held(1.0):
        observer.note_end(end_of(0, None, rank=0, time_s=1.0))  # nor does the word of the launcher
        observer.close()


def _evidence(**changes: object) -> NodeEvidence:
    rank = RankEvidence(rank=3, status=RankStatus(rank=3), log_tail="step 1\n", nccl_log_tail="NCCL INFO\n")
    row = SocketRow(rank=3, pid=1, local="10.0.0.1", local_port=1, remote="10.0.0.2", remote_port=2)
    return NodeEvidence(
        node_rank=0,
        number=1,
        time_s=5.0,
        status=NodeStatus(node_rank=0),
        ranks=(rank,),
        sockets=(row,),
        kernel_lines=("a line",),
        ras='{"communicators": []}',
        **changes,  # type: ignore[arg-type]
    )


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_evidence_is_kept_beside_the_logs_and_touches_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "rank3/evidence").mkdir(parents=True)
    (tmp_path / "rank3/evidence/old").write_text("of an earlier question")
    (tmp_path / "rank3/out.log").write_text("whole log")
    keep(_evidence(), tmp_path, whole_logs={3})
    assert files_below(tmp_path) == {"rank3/out.log", "kernel.log", "ras.json", "sockets.json", "status.json"}
    assert (tmp_path / "rank3/out.log").read_text() == "whole log"
    keep(_evidence(), tmp_path)
    assert {"rank3/out.log", "rank3/evidence/out.tail.log", "rank3/evidence/nccl.tail.log"} <= files_below(tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_the_last_stacks_of_a_rank_stay_when_it_has_ended(tmp_path: Path) -> None:
    """A job that is ended because it hangs is asked again while its ranks end."""

    def of(state: str, stack: str) -> NodeEvidence:
        rank = RankEvidence(rank=3, status=RankStatus(rank=3, process_state=ProcessState(state)), stack=stack)
        return NodeEvidence(node_rank=0, number=1, time_s=5.0, status=NodeStatus(node_rank=0), ranks=(rank,))

    stacks = tmp_path / "rank3/evidence/stacks.txt"
    keep(of("sleeping", "where it waits"), tmp_path)
    keep(of("killed", ""), tmp_path)
    assert stacks.read_text() == "where it waits"
    keep(of("killed", "where it crashed"), tmp_path)
    assert stacks.read_text() == "where it crashed"
    keep(of("stopped", ""), tmp_path)  # it lives on, perhaps elsewhere by now
    assert not stacks.exists()


def test_evidence_that_cannot_be_written_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(_evidence(), tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in files_below(tmp_path)}
    real = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.name == "sockets.json":
            raise OSError(28, "No space left on device")
        return real(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        keep(_evidence(problems=("other",)), tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in files_below(tmp_path)} == before


def test_what_a_rank_puts_in_place_of_its_ring_is_neither_waited_for_nor_read(tmp_path: Path) -> None:
    with Node(tmp_path, [SLEEPS]) as node:
        path = run_paths.rank_dir(node.run_dir, 0) / names.RINGS[0]
        tracemalloc.start()
        try:
            path.symlink_to("/dev/zero")
            node.look()
            assert node.observer.gather(1).ranks[0].ring == ""
            path.unlink()
            os.mkfifo(path)
            node.look()
            node.observer.gather(2)
            assert tracemalloc.get_traced_memory()[1] < 50_000_000
        finally:
            tracemalloc.stop()
