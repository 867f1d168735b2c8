"""Stacks of a rank and of the workers it forked: from memory, by the beacon's signal, by py-spy.

No rank dies of being asked, and no call of theirs returns earlier.
"""

import base64
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from allready.evidence.stacks.read import read_stacks
from allready.live import run_paths
from allready.live.beacon import names
from allready.live.beacon.cell import BeaconCell
from allready.live.beacon.names import STACK_SIGNAL
from allready.live.node.cell import BeaconCellReader
from allready.live.node.stacks import StackFile, spy, spy_program
from allready.model.live import RankEvidence
from allready.proc.process import children_of, has_handler
from tests.clock import Stopwatch
from tests.live.node.nodes import ALIVE, SLEEPS, Node, until

MakeNode = Callable[..., Node]

WITH_HANDLER = """
import ctypes, faulthandler, json, os, signal, sys, threading, time
path = os.environ["STACKS"]
fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
faulthandler.register(signal.SIGRTMIN + 7, file=fd, all_threads=True, chain=False)
get = ctypes.pythonapi.PyThreadState_Get
get.restype = ctypes.c_void_p
def worker_of_rank():
    WORKS
def rank_itself():
    SLEEPS
for _ in range(int(os.environ.get("FORKS", "0"))):
    if os.fork() == 0: worker_of_rank()
def beats():
    BEATS
thread = threading.Thread(target=beats, daemon=True)
thread.start()
with open(path + ".part", "w") as file:
    json.dump([get(), id(type), sys.hexversion, fd, thread.native_id], file)
os.rename(path + ".part", path + ".info")
rank_itself()
"""
"""A rank whose thread `beats` sends heartbeats in a cell of no rank."""


def with_cell(
    make_node: MakeNode,
    tmp_path: Path,
    *,
    sleeps: str = "time.sleep(600)",
    beats: str = "time.sleep(600)",
    works: str = "time.sleep(600)",
    forks: int = 0,
    is_readable: bool = True,
) -> tuple[Node, BeaconCell]:
    """`is_readable`: its cell says where its frames are."""
    folder = run_paths.rank_dir(tmp_path / "run", 0)
    path = folder / names.STACKS
    script = WITH_HANDLER.replace("SLEEPS", sleeps).replace("BEATS", beats).replace("WORKS", works)
    node = make_node([script], environments=[{"STACKS": str(path), "FORKS": str(forks)}])
    info = path.with_name(f"{names.STACKS}.info")
    until(info.exists, bool)
    state, type_address, version, fd, thread = json.loads(info.read_text())
    cell = BeaconCell(str(folder / names.CELL))
    cell.set_thread(thread)
    cell.set_stacks_fd(fd)
    if is_readable:
        cell.set_place(state, type_address, version)
    return node, cell


def old(cell: BeaconCell) -> None:
    """Its last heartbeat is more than a second ago."""
    cell.heartbeat()
    time.sleep(1.2)


def functions(rank: RankEvidence) -> dict[int | None, list[str]]:
    """Process -> the functions of its threads' innermost frames."""
    found = read_stacks(rank.stack.encode(), "x").stacks
    return {stack.pid: [thread.frames[0].function for thread in stack.threads] for stack in found}


@pytest.mark.parametrize("is_readable", [True, False])
def test_each_question_gets_its_own_answer(make_node: MakeNode, tmp_path: Path, is_readable: bool) -> None:
    node, cell = with_cell(make_node, tmp_path, is_readable=is_readable)
    old(cell)
    for number in range(3):
        (rank,) = node.observer.gather(number, deadline_s=5.0).ranks
        (stack,) = read_stacks(rank.stack.encode(), "x").stacks
        assert (stack.pid, stack.rank) == (node.processes[0].pid, 0)
        assert {"beats", "rank_itself"} <= set(functions(rank)[stack.pid])
        assert rank.stack.count("Current thread") == (0 if is_readable else 1)


def test_forked_workers_are_read_each_under_its_own_name(make_node: MakeNode, tmp_path: Path) -> None:
    node, cell = with_cell(make_node, tmp_path, forks=2)
    workers = until(lambda: children_of(node.processes[0].pid) or [], lambda pids: len(pids) == 2)
    time.sleep(2.2)  # younger ones are not asked: they might become another program
    old(cell)
    node.look()
    (rank,) = node.observer.gather(1, deadline_s=5.0).ranks
    stacks = {s.pid: s for s in read_stacks(rank.stack.encode(), "x").stacks}
    assert set(stacks) == {node.processes[0].pid, *workers}
    assert {pid: functions(rank)[pid] for pid in workers} == {pid: ["worker_of_rank"] for pid in workers}
    assert {pid: s.rank for pid, s in stacks.items()} == {node.processes[0].pid: 0} | dict.fromkeys(workers)
    assert not (run_paths.rank_dir(node.run_dir, 0) / names.STACKS).read_text()  # no rank was sent the signal


@pytest.mark.parametrize(("works", "is_sent"), [("time.sleep(600)", False), ("while True: pass", True)])
def test_a_worker_whose_memory_may_not_be_read_is_sent_the_signal_only_while_it_runs(
    make_node: MakeNode, tmp_path: Path, works: str, is_sent: bool
) -> None:
    node, cell = with_cell(make_node, tmp_path, forks=1, works=works, is_readable=False)
    (worker,) = until(lambda: children_of(node.processes[0].pid) or [], bool)
    time.sleep(2.2)
    old(cell)
    node.look()
    (rank,) = node.observer.gather(1, deadline_s=5.0).ranks
    assert (worker in functions(rank)) is is_sent


NATIVE = """libc = LIBRARY(None)
    os.write(1, b"begins\\n")
    began = time.monotonic()
    CALL
    os.write(1, b"returned %f\\n" % (time.monotonic() - began))
    time.sleep(600)"""
NATIVE_S = 6.0
NATIVE_CALLS = {
    "usleep": "libc.usleep(6_000_000)",
    "poll": "libc.poll(None, 0, 6000)",
    "select": "libc.select(0, None, None, None, ctypes.byref((ctypes.c_long * 2)(6, 0)))",
    "nanosleep": "libc.nanosleep(ctypes.byref((ctypes.c_long * 2)(6, 0)), None)",
    "read": "libc.read(os.pipe()[0], ctypes.create_string_buffer(1), 1)",
}


@pytest.mark.parametrize(
    ("call", "library", "is_readable"),
    [
        ("usleep", "ctypes.PyDLL", True),
        ("read", "ctypes.PyDLL", True),
        ("poll", "ctypes.PyDLL", False),
        ("select", "ctypes.CDLL", False),
        *(pytest.param(call, "ctypes.PyDLL", True, marks=pytest.mark.slow) for call in ("nanosleep", "poll", "select")),
        pytest.param("usleep", "ctypes.PyDLL", False, marks=pytest.mark.slow),
        pytest.param("nanosleep", "ctypes.CDLL", True, marks=pytest.mark.slow),
    ],
)
def test_no_native_call_is_interrupted(
    make_node: MakeNode, tmp_path: Path, call: str, library: str, is_readable: bool
) -> None:
    """Of a rank and of a worker that it has forked, with the GIL and without; nor where memory may not be read."""
    wait = NATIVE.replace("LIBRARY", library).replace("CALL", NATIVE_CALLS[call])
    node, cell = with_cell(make_node, tmp_path, sleeps=wait, works=wait, forks=1, is_readable=is_readable)
    until(lambda: node.log(0).read_text().count("begins"), lambda n: n == 2)
    time.sleep(2.2)
    old(cell)
    node.look()
    for number in range(2):
        (rank,) = node.observer.gather(number, deadline_s=0.7).ranks
        assert len(functions(rank)) == (2 if is_readable else 1), rank.why_no_stack
    if call == "read":
        assert "returned" not in node.log(0).read_text()
        return
    until(lambda: node.log(0).read_text().count("returned"), lambda n: n == 2)
    took = [float(line.split()[1]) for line in node.log(0).read_text().splitlines() if line.startswith("returned")]
    assert min(took) > NATIVE_S - 0.01


def test_a_process_without_the_handler_is_not_sent_the_signal(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node([SLEEPS])
    pid = node.processes[0].pid
    file = StackFile(tmp_path / "stacks", STACK_SIGNAL)
    file.ask(pid)
    assert file.why_not(pid) == "it has no beacon"
    (tmp_path / "stacks").touch()
    BeaconCell(str(tmp_path / "cell")).set_stacks_fd(1)
    file = StackFile(tmp_path / "stacks", STACK_SIGNAL, cell=BeaconCellReader(tmp_path / "cell"))
    file.ask(pid)
    assert "no handler" in file.why_not(pid)
    assert node.rank(0).process_state in ALIVE
    (rank,) = node.observer.gather(1).ranks
    assert node.rank(0).process_state in ALIVE
    assert rank.stack or rank.why_no_stack


def test_who_handles_the_signal_for_itself_is_not_sent_it(make_node: MakeNode, tmp_path: Path) -> None:
    """A job that was started without a beacon, and uses that very signal."""
    script = "import signal, time\nsignal.signal(signal.SIGRTMIN + 7, lambda *_: exit(9))\n" + SLEEPS
    node = make_node([script])
    until(lambda: has_handler(node.processes[0].pid, STACK_SIGNAL), bool)
    node.observer.gather(1)
    time.sleep(0.3)
    assert node.rank(0).process_state in ALIVE


def test_a_rank_that_ended_has_the_stack_of_its_crash(make_node: MakeNode) -> None:
    node = make_node(["pass", "pass"])
    crash = run_paths.rank_dir(node.run_dir, 0) / names.CRASH
    crash.write_text(
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x01 (most recent call first):\n"
        '  File "a.py", line 3 in boom\n'
    )
    until(node.look, lambda s: all(r.process_state == "exited" for r in s.ranks))
    first, second = node.observer.gather(1).ranks
    (stack,) = read_stacks(first.stack.encode(), "x").stacks
    assert stack.threads[0].frames[0].function == "boom"
    assert (first.why_no_stack, second.stack, second.why_no_stack) == ("", "", "ended")


@pytest.mark.parametrize("dump_is_newer", [True, False])
def test_a_dump_that_is_older_than_the_ring_is_left_out(make_node: MakeNode, dump_is_newer: bool) -> None:
    """What a rank did last explains its end, and a dump of an earlier question does not have it."""
    node = make_node(["pass"])
    folder = run_paths.rank_dir(node.run_dir, 0)
    for path, text in ((folder / names.RINGS[0], "the ring"), (folder / names.DUMPS[0], "the dump")):
        path.write_text(text)
        age_s = 10 if (path == folder / names.DUMPS[0]) != dump_is_newer else 1
        os.utime(path, (time.time() - age_s,) * 2)
    until(node.look, lambda s: s.ranks[0].process_state == "exited")
    (rank,) = node.observer.gather(1).ranks
    assert rank.ring == "the ring"
    assert base64.b64decode(rank.dump).decode() == ("the dump" if dump_is_newer else "")


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_a_beacon_that_gets_no_turn_for_a_second_is_helped_by_the_signal(make_node: MakeNode, tmp_path: Path) -> None:
    """As where native code keeps the GIL: the thread that beats sleeps, and its last beat is old."""
    node, cell = with_cell(make_node, tmp_path, is_readable=False)
    cell.heartbeat()
    (rank,) = node.observer.gather(1, deadline_s=0.9).ranks  # its beat is too young
    assert (rank.stack, rank.why_no_stack) == ("", "it did not answer in time")
    time.sleep(0.5)
    (rank,) = node.observer.gather(2, deadline_s=5.0).ranks
    assert rank.stack.count("Current thread") == 1


def test_a_rank_that_makes_a_dump_is_not_sent_the_signal(make_node: MakeNode, tmp_path: Path) -> None:
    """The dump's thread imports meanwhile, and the frames of other threads are read without their lock."""
    node, cell = with_cell(make_node, tmp_path)
    time.sleep(1.2)
    cell.set_dumping(True)
    (rank,) = node.observer.gather(1).ranks
    assert rank.stack == ""
    cell.set_dumping(False)
    (rank,) = node.observer.gather(2).ranks
    assert "rank_itself" in rank.stack


def test_a_beacon_that_waits_for_a_processor_is_waited_for(make_node: MakeNode, tmp_path: Path) -> None:
    node, _cell = with_cell(make_node, tmp_path, beats="while True: pass")
    time.sleep(1.2)
    (rank,) = node.observer.gather(1).ranks
    assert (rank.stack, rank.why_no_stack) == ("", "it did not answer in time")
    assert not read(run_paths.rank_dir(node.run_dir, 0) / names.STACKS)


@pytest.mark.parametrize("is_readable", [True, False])
def test_a_stopped_rank_is_read_and_not_asked_to_write_stacks_later(
    make_node: MakeNode, tmp_path: Path, is_readable: bool
) -> None:
    node, cell = with_cell(make_node, tmp_path, is_readable=is_readable)
    until(lambda: node.rank(0), lambda r: r.process_state == "sleeping")
    node.kill(0, signal.SIGSTOP)
    until(lambda: node.rank(0), lambda r: r.process_state == "stopped")
    (rank,) = node.observer.gather(1).ranks
    assert ("rank_itself" in rank.stack, rank.why_no_stack) == ((True, "") if is_readable else (False, "stopped"))
    ring, dump, stacks = cell.wanted()
    assert (ring == dump > 0, stacks) == (True, 0)
    node.kill(0, signal.SIGCONT)
    time.sleep(0.2)
    assert not (run_paths.rank_dir(node.run_dir, 0) / names.STACKS).read_text()  # no late answer to confuse the next


def test_an_answer_that_comes_at_once_is_not_missed(tmp_path: Path) -> None:
    """The rank may have written its stacks before the request is back."""
    path, mine = tmp_path / "stacks", BeaconCell(str(tmp_path / "cell"))
    path.write_text("older\n")
    reader = BeaconCellReader(tmp_path / "cell")
    plain = reader.request

    def answered(*kinds: str) -> int | None:
        number = plain(*kinds)
        with path.open("a") as file:
            file.write("Thread 0x01 (most recent call first):\n")
        mine.answer("stacks", mine.wanted()[2])
        return number

    reader.request = answered  # type: ignore[method-assign]
    file = StackFile(path, STACK_SIGNAL, cell=reader)
    assert file.ask_rank(os.getpid(), ("ring",)) == 1
    assert file.poll()
    assert file.text(os.getpid()) == "Thread 0x01 (most recent call first):\n"


@pytest.mark.parametrize("is_readable", [True, False])
def test_where_no_thread_beats_nobody_is_sent_the_signal(
    make_node: MakeNode, tmp_path: Path, is_readable: bool
) -> None:
    """While it forks there is none for a moment; when it ends, for good."""
    node, cell = with_cell(make_node, tmp_path, is_readable=is_readable)
    cell.set_thread(0)
    began = Stopwatch()
    (rank,) = node.observer.gather(1).ranks
    assert began.wall_s > 0.5
    why = "" if is_readable else "its beacon does not run"
    assert ("rank_itself" in rank.stack, rank.why_no_stack) == (is_readable, why)
    assert not read(run_paths.rank_dir(node.run_dir, 0) / names.STACKS)


def test_a_file_that_the_rank_has_closed_is_not_written_to(make_node: MakeNode, tmp_path: Path) -> None:
    """Its number may be that of another file by now."""
    other = tmp_path / "other"
    wait = f"os.dup2(os.open({str(other)!r}, os.O_RDWR | os.O_CREAT), fd); time.sleep(600)"
    node, cell = with_cell(make_node, tmp_path, sleeps=wait, is_readable=False)
    until(other.exists, bool)
    old(cell)
    (rank,) = node.observer.gather(1, deadline_s=5.0).ranks
    assert (rank.stack, rank.why_no_stack) == ("", "it has closed the file for its stacks")
    assert not other.read_text()


def test_who_comes_late_to_its_answer_is_waited_for(make_node: MakeNode, tmp_path: Path) -> None:
    """As on a machine that has more to do than processors."""
    late = """signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 7])
    while signal.SIGRTMIN + 7 not in signal.sigpending(): time.sleep(0.01)
    time.sleep(0.8)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGRTMIN + 7])
    time.sleep(600)"""
    node, cell = with_cell(make_node, tmp_path, beats=late, is_readable=False)
    old(cell)
    (rank,) = node.observer.gather(1, deadline_s=5.0).ranks
    assert rank.stack.count("Current thread") == 1, rank.why_no_stack


def test_py_spy_sees_what_has_no_handler(make_node: MakeNode) -> None:
    if spy_program() is None:
        pytest.skip("py-spy is not installed")
    node = make_node(["import time\ndef nobody_asks(): time.sleep(600)\nnobody_asks()"])
    pid = node.processes[0].pid
    text = until(lambda: spy([pid], time.monotonic() + 5, spy_program()).get(pid, ""), lambda t: "nobody_asks" in t)
    assert f"Process {pid}" in text
    (rank,) = node.observer.gather(1, deadline_s=6.0).ranks
    assert [(s.rank, s.pid) for s in read_stacks(rank.stack.encode(), "x").stacks] == [(0, pid)]


def test_py_spy_that_hangs_is_ended(tmp_path: Path) -> None:
    program = tmp_path / "py-spy"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    began = Stopwatch()
    assert spy([1, 2, 3], time.monotonic() + 0.4, str(program)) == {}
    assert began.s < 5
    assert spy([1], time.monotonic() + 1, str(tmp_path / "none")) == {}
    assert spy([1], time.monotonic() + 1, None) == {}
