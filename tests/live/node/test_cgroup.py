"""CPU quota and memory kills, in real groups where this machine lets us."""

from collections.abc import Callable
from pathlib import Path

from allready.live.node.kernel import is_oom_kill
from allready.live.node.oom_kills import KILL_IS_FRESH_S, OomKills
from allready.model.process import end_of
from allready.proc.cgroup import CgroupFiles
from tests.live.node.groups import cpu_group, memory_group
from tests.live.node.nodes import SLEEPS, Node, until

MakeNode = Callable[..., Node]

EATS = """
import os, time
while not os.path.exists(os.environ["GO"]): time.sleep(0.02)
blocks = []
while True: blocks.append(bytearray(os.urandom(1 << 20)))
"""
COMPUTES_WHEN_TOLD = """
import os, time
while not os.path.exists(os.environ["GO"]): time.sleep(0.02)
while True: sum(range(100000))
"""


def test_a_quota_that_holds_a_rank_back_has_a_share(make_node: MakeNode, tmp_path: Path) -> None:
    with cpu_group(0.02) as group:
        go = tmp_path / "go"
        node = make_node([COMPUTES_WHEN_TOLD, SLEEPS], environments=[{"GO": str(go)}, {}])
        (group / "cgroup.procs").write_text(str(node.processes[0].pid))
        go.touch()
        found = until(node.look, lambda s: (s.ranks[0].throttled_share or 0.0) > 0.3, every_s=0.25, timeout_s=40.0)
        assert (found.ranks[1].throttled_share or 0.0) < 0.1
        node.processes[0].kill()
        node.processes[0].wait(5)


def test_a_rank_killed_for_want_of_memory_is_told_from_one_that_was_just_killed(
    make_node: MakeNode, tmp_path: Path
) -> None:
    with memory_group(48 << 20) as group:
        go = tmp_path / "go"
        node = make_node([EATS, SLEEPS, SLEEPS], environments=[{"GO": str(go)}, {}, {}])
        for process in node.processes[:2]:  # the second shares the group, and dies of something else right after
            (group / "cgroup.procs").write_text(str(process.pid))
        until(node.look, lambda s: all(r.rss_bytes for r in s.ranks))
        node.look()
        go.touch()
        found = until(lambda: node.rank(0), lambda r: r.process_state == "killed")
        assert (found.signal, found.oom_killed) == ("SIGKILL", True)
        for rank in (1, 2):
            node.processes[rank].kill()
            found = until(lambda r=rank: node.rank(r), lambda r: r.process_state == "killed")  # type: ignore[misc]
            assert (found.signal, found.oom_killed) == ("SIGKILL", False)
        node.processes[0].wait(5)
        node.observer.note_end(end_of(None, "SIGKILL", rank=0, time_s=1.0))
        assert node.rank(0).oom_killed


def test_one_memory_kill_explains_one_death() -> None:
    watch, here = OomKills(), CgroupFiles(memory="group")
    watch.count("group", 3, 0.0)  # of an earlier job
    assert not watch.claim(here)
    watch.count("group", 4, 1.0)
    assert watch.claim(here)
    assert not watch.claim(here)


def test_a_memory_kill_of_a_child_does_not_explain_a_later_death() -> None:
    watch, here = OomKills(), CgroupFiles(memory="group")
    watch.count("group", 0, 0.0)
    watch.count("group", 1, 1.0)
    watch.count("group", 1, 2.0 + KILL_IS_FRESH_S)
    assert not watch.claim(here)


def test_a_line_of_the_kernel_names_who_was_killed() -> None:
    line = "2026-11-20T11:51:03,1+00:00 Memory cgroup out of memory: Killed process 777 (python) total-vm:1kB"
    assert is_oom_kill(line, 777, "python")
    assert not is_oom_kill(line, 77, "python")
    assert not is_oom_kill(line, 777, "nginx")  # the number was another's
    assert not is_oom_kill("python[777]: segfault at 0 pid=777", 777, "python")
