"""CPU quota and memory kills, in real groups where this machine lets us, and from files of every kind of machine."""

from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from allready.live.node.cgroup import (
    KILL_IS_FRESH_S,
    Mounts,
    OomWatch,
    Places,
    cpu_pressure_share,
    num_oom_kills,
    parse_mounts,
    parse_places,
    throttled_s,
)
from allready.live.node.kernel import is_oom_kill
from allready.model.process import end_of
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

V1 = """\
30 23 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:11 - cgroup cgroup rw,cpu,cpuacct
31 23 0:27 / /sys/fs/cgroup/memory rw,nosuid shared:12 - cgroup cgroup rw,memory
32 23 0:28 / /sys/fs/cgroup/unified rw shared:13 - cgroup2 cgroup2 rw
"""
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
CONTAINER_V1 = (
    "1 2 0:26 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"
    "1 2 0:27 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
)


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


def test_groups_are_found_in_version_1_and_2() -> None:
    text = "5:cpu,cpuacct:/a/b\n4:memory:/a\n0::/user.slice/x\n"
    assert parse_places(text, parse_mounts(V1)) == Places(
        cpu=(
            "/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.stat",
            "/sys/fs/cgroup/cpu,cpuacct/a/cpu.stat",
            "/sys/fs/cgroup/cpu,cpuacct/cpu.stat",
        ),
        memory="/sys/fs/cgroup/memory/a/memory.oom_control",
    )
    assert parse_places("0::/user.slice/x\n", parse_mounts(V2)) == Places(
        cpu=(
            "/sys/fs/cgroup/user.slice/x/cpu.stat",
            "/sys/fs/cgroup/user.slice/cpu.stat",
            "/sys/fs/cgroup/cpu.stat",
        ),
        memory="/sys/fs/cgroup/user.slice/x/memory.events",
    )


def test_groups_are_found_in_a_container() -> None:
    found = parse_places("5:cpu:/docker/abc/job\n4:memory:/docker/abc\n", parse_mounts(CONTAINER_V1))
    assert found.cpu == ("/sys/fs/cgroup/cpu/job/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat")
    assert found.memory == "/sys/fs/cgroup/memory/memory.oom_control"


def test_groups_outside_of_what_is_mounted_are_not_guessed() -> None:
    assert parse_places("5:cpu:/other\n4:memory:/../x\n", parse_mounts(CONTAINER_V1)) == Places()
    assert parse_places("", parse_mounts("")) == Places()


def test_throttling_and_kills_are_read_in_both_forms(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("nr_periods 5\nnr_throttled 3\nthrottled_time 2500000000\n")
    (tmp_path / "2").write_text("usage_usec 9\nthrottled_usec 1500000\n")
    (tmp_path / "3").write_text("usage_usec 9\n")
    (tmp_path / "events").write_text("low 0\noom 2\noom_kill 1\n")
    assert throttled_s(Places(cpu=(str(tmp_path / "1"), str(tmp_path / "3"), str(tmp_path / "2")))) == (2.5, 1.5)
    assert throttled_s(Places(cpu=(str(tmp_path / "3"),))) is None
    assert num_oom_kills(Places(memory=str(tmp_path / "events"))) == 1
    assert num_oom_kills(Places(memory=str(tmp_path / "none"))) is None


def test_one_memory_kill_explains_one_death() -> None:
    watch, here = OomWatch(), Places(memory="group")
    watch.count("group", 3, 0.0)  # of an earlier job
    assert not watch.claim(here)
    watch.count("group", 4, 1.0)
    assert watch.claim(here)
    assert not watch.claim(here)


def test_a_memory_kill_of_a_child_does_not_explain_a_later_death() -> None:
    watch, here = OomWatch(), Places(memory="group")
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


def test_pressure_is_a_share(tmp_path: Path) -> None:
    file = tmp_path / "cpu"
    file.write_text("some avg10=25.50 avg60=0.74 avg300=0.31 total=5\nfull avg10=90.00 avg60=0 avg300=0 total=0\n")
    assert cpu_pressure_share(str(file)) == 0.255
    file.write_text("some avg10=x\n")
    assert cpu_pressure_share(str(file)) is None
    assert cpu_pressure_share(str(tmp_path / "none")) is None


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_text_is_read_without_an_error(mounts: str, groups: str) -> None:
    found = parse_places(groups, parse_mounts(mounts))
    assert all("/../" not in path for path in found.cpu)
    parse_places(groups, Mounts(of={"cpu": ("/x", "/"), "": ("/y", "/a"), "memory": ("/z", groups)}))
