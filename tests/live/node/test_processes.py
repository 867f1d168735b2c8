"""What a look tells of processes: stopped, ended, busy, and whom they started."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from allready.model import NodeStatus
from allready.model.process import end_of
from allready.proc.process import children_of, command_of, main_thread_s, read_stat
from tests.live.node.nodes import ALIVE, COMPUTES, SLEEPS, Node, until

MakeNode = Callable[..., Node]

FORKS = """
import os, time
for _ in range(2):
    if os.fork() == 0:
        while True: time.sleep(0.05)
while True: time.sleep(0.05)
"""
STARTS_A_COMPILER = """
import os, subprocess, sys, time
os.symlink("/bin/sleep", os.environ["FOLDER"] + "/ptxas")
subprocess.Popen([os.environ["FOLDER"] + "/ptxas", "600"])
waits = "import time; time.sleep(600)"
subprocess.Popen([sys.executable, "-c", waits, "--token=hf_abcdefghijklmnopqrstuvwxyz012345"])
while True: time.sleep(0.05)
"""


def test_a_stopped_rank_is_seen_by_the_next_look(make_node: MakeNode) -> None:
    node = make_node([SLEEPS, SLEEPS])
    assert node.rank(0).process_state in ALIVE
    node.kill(0, signal.SIGSTOP)
    until(lambda: read_stat(node.processes[0].pid), lambda s: s is not None and s.state == "stopped")
    status = node.look()
    assert [r.process_state == "stopped" for r in status.ranks] == [True, False]
    assert node.observer.changed()
    node.look()
    assert not node.observer.changed()
    node.kill(0, signal.SIGCONT)
    assert node.rank(0).process_state != "stopped"
    assert node.observer.changed()


def test_a_pause_between_two_looks_is_seen_all_the_same(make_node: MakeNode) -> None:
    node = make_node([SLEEPS, SLEEPS])
    node.look()
    node.kill(0, signal.SIGSTOP)
    until(lambda: read_stat(node.processes[0].pid), lambda s: s is not None and s.state == "stopped")
    node.kill(0, signal.SIGCONT)
    until(lambda: read_stat(node.processes[0].pid), lambda s: s is not None and s.state != "stopped")
    assert node.rank(0).process_state != "stopped"
    assert node.observer.changed()


def test_stop_pulses_have_a_share_and_others_have_none(make_node: MakeNode) -> None:
    node = make_node([SLEEPS, SLEEPS])
    shares = []
    for _ in range(4):
        node.kill(0, signal.SIGSTOP)
        time.sleep(0.3)
        node.kill(0, signal.SIGCONT)
        node.look()
        time.sleep(0.45)
        shares.append(node.rank(0).paused_share)
    assert shares[-1] is not None
    assert 0.15 < shares[-1] < 0.7
    assert node.rank(1).paused_share is None


def test_a_killed_rank_has_its_signal_before_anybody_reaped_it(make_node: MakeNode) -> None:
    node = make_node([SLEEPS, SLEEPS])
    node.look()
    node.kill(1, signal.SIGKILL)
    found = until(lambda: node.rank(1), lambda r: r.process_state == "killed")
    assert (found.signal, found.exit_code, found.oom_killed) == ("SIGKILL", None, False)
    assert found.ended_s is not None
    assert abs(found.ended_s - time.time()) < 30
    assert node.processes[1].wait(5) == -signal.SIGKILL  # the observer left it to its parent


def test_a_rank_that_ended_by_itself_has_its_exit_code(make_node: MakeNode) -> None:
    node = make_node(["raise SystemExit(3)", SLEEPS])
    found = until(lambda: node.rank(0), lambda r: r.process_state == "exited")
    assert (found.exit_code, found.signal) == (3, None)
    assert found.cpu_share is None


def test_the_launchers_word_on_an_end_counts(make_node: MakeNode) -> None:
    node = make_node([SLEEPS])
    node.look()
    node.processes[0].kill()
    node.processes[0].wait(5)
    assert node.rank(0).process_state == "exited"  # gone, it is not known how
    node.observer.note_end(end_of(None, "SIGKILL", rank=0, time_s=123.0))
    found = node.rank(0)
    assert (found.process_state, found.signal, found.ended_s) == ("killed", "SIGKILL", 123.0)


def test_cpu_time_tells_who_computes(make_node: MakeNode) -> None:
    node = make_node([COMPUTES, SLEEPS])
    node.look()
    found = until(node.look, lambda s: (s.ranks[0].cpu_share or 0.0) > 0.03, every_s=0.3, timeout_s=40.0)
    assert (found.ranks[1].cpu_share or 0.0) < (found.ranks[0].cpu_share or 0.0) / 2
    assert (found.ranks[0].main_cpu_s or 0.0) > (found.ranks[1].main_cpu_s or 0.0)
    assert found.ranks[0].rss_bytes is not None
    assert found.ranks[0].rss_bytes > 1 << 20
    assert found.ranks[0].num_threads == 1


def test_who_waits_for_a_cpu_is_told(make_node: MakeNode) -> None:
    if main_thread_s(os.getpid())[1] is None:
        pytest.skip("this kernel does not count it")
    node = make_node([COMPUTES, COMPUTES, COMPUTES, SLEEPS])
    one = min(os.sched_getaffinity(0))
    for process in node.processes[:3]:
        os.sched_setaffinity(process.pid, {one})
    node.look()
    wanted = 0.35  # two of three wait at any time

    def is_told(status: NodeStatus) -> bool:
        """The sleeping one starts like the others, and may wait for a CPU until it sleeps."""
        *busy, idle = (r.queued_share or 0.0 for r in status.ranks)
        return min(busy) > wanted and idle < wanted / 2

    until(node.look, is_told, timeout_s=40.0)


def test_forked_workers_are_loaders_and_a_stopped_one_shows(make_node: MakeNode) -> None:
    node = make_node([FORKS])
    pid = node.processes[0].pid
    workers = until(lambda: children_of(pid) or [], lambda pids: len(pids) == 2)
    os.kill(workers[1], signal.SIGSTOP)
    until(lambda: read_stat(workers[1]), lambda s: s is not None and s.state == "stopped")
    rows = {row.pid: row for row in node.observer.gather(1).ranks[0].children}
    assert {row.role for row in rows.values()} == {"loader"}
    assert rows[workers[1]].state == "stopped"
    assert rows[workers[0]].state != "stopped"
    assert rows[workers[0]].parent == pid


def test_a_dead_worker_that_nobody_reaped_shows(make_node: MakeNode) -> None:
    node = make_node([FORKS])
    workers = until(lambda: children_of(node.processes[0].pid) or [], lambda pids: len(pids) == 2)
    os.kill(workers[0], signal.SIGKILL)
    until(lambda: read_stat(workers[0]), lambda s: s is not None and s.state == "zombie")
    rows = {row.pid: row.state for row in node.observer.gather(1).ranks[0].children}
    assert rows[workers[0]] == "zombie"


def test_compilers_are_known_and_secrets_in_commands_are_masked(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node([STARTS_A_COMPILER], environments=[{"FOLDER": str(tmp_path)}])
    pid = node.processes[0].pid
    until(
        lambda: [command_of(child) for child in children_of(pid) or []],
        lambda commands: len(commands) == 2 and "ptxas" in commands[0] and "hf_" in commands[1],
    )
    rows = node.observer.gather(1).ranks[0].children
    assert sorted(row.role for row in rows) == ["compiler", "other"]
    assert not any("hf_" in row.command for row in rows)


def test_a_pid_that_belongs_to_somebody_else_now_is_no_rank(make_node: MakeNode) -> None:
    node = make_node([SLEEPS])
    node.look()
    watch = node.observer._ranks[0]
    assert watch.process is not None
    watch.process = replace(watch.process, start_ticks=watch.process.start_ticks - 1)
    assert node.rank(0).process_state == "exited"


def test_a_reader_of_a_pipe_is_told_with_its_call_and_path(make_node: MakeNode) -> None:
    node = make_node(["import os\nr, w = os.pipe()\nos.read(r, 1)"])
    evidence = until(
        lambda: node.observer.gather(1).ranks[0], lambda e: e.syscall is not None and e.syscall.name == "read"
    )
    assert evidence.open_file is not None
    assert evidence.open_file.startswith("pipe:")
