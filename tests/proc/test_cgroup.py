"""Control groups from files of every kind of machine."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from allready.proc.cgroup import (
    CgroupFiles,
    Mounts,
    cpu_pressure_share,
    files_of,
    num_oom_kills,
    parse_cgroup,
    parse_mounts,
    throttled_s,
)

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


def files_of_text(text: str, mounts: Mounts) -> CgroupFiles:
    return files_of(parse_cgroup(text), mounts)


def test_groups_are_found_in_version_1_and_2() -> None:
    text = "5:cpu,cpuacct:/a/b\n4:memory:/a\n0::/user.slice/x\n"
    assert files_of_text(text, parse_mounts(V1)) == CgroupFiles(
        cpu=(
            "/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.stat",
            "/sys/fs/cgroup/cpu,cpuacct/a/cpu.stat",
            "/sys/fs/cgroup/cpu,cpuacct/cpu.stat",
        ),
        memory="/sys/fs/cgroup/memory/a/memory.oom_control",
    )
    assert files_of_text("0::/user.slice/x\n", parse_mounts(V2)) == CgroupFiles(
        cpu=("/sys/fs/cgroup/user.slice/x/cpu.stat", "/sys/fs/cgroup/user.slice/cpu.stat", "/sys/fs/cgroup/cpu.stat"),
        memory="/sys/fs/cgroup/user.slice/x/memory.events",
    )


def test_groups_are_found_in_a_container() -> None:
    found = files_of_text("5:cpu:/docker/abc/job\n4:memory:/docker/abc\n", parse_mounts(CONTAINER_V1))
    assert found.cpu == ("/sys/fs/cgroup/cpu/job/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat")
    assert found.memory == "/sys/fs/cgroup/memory/memory.oom_control"


def test_groups_outside_of_what_is_mounted_are_not_guessed() -> None:
    assert files_of_text("5:cpu:/other\n4:memory:/../x\n", parse_mounts(CONTAINER_V1)) == CgroupFiles()
    assert files_of_text("", parse_mounts("")) == CgroupFiles()


def test_throttling_and_kills_are_read_in_both_forms(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("nr_periods 5\nnr_throttled 3\nthrottled_time 2500000000\n")
    (tmp_path / "2").write_text("usage_usec 9\nthrottled_usec 1500000\n")
    (tmp_path / "3").write_text("usage_usec 9\n")
    (tmp_path / "events").write_text("low 0\noom 2\noom_kill 1\n")
    assert throttled_s(CgroupFiles(cpu=(str(tmp_path / "1"), str(tmp_path / "3"), str(tmp_path / "2")))) == (2.5, 1.5)
    assert throttled_s(CgroupFiles(cpu=(str(tmp_path / "3"),))) is None
    assert num_oom_kills(CgroupFiles(memory=str(tmp_path / "events"))) == 1
    assert num_oom_kills(CgroupFiles(memory=str(tmp_path / "none"))) is None


def test_pressure_is_a_share(tmp_path: Path) -> None:
    file = tmp_path / "cpu"
    file.write_text("some avg10=25.50 avg60=0.74 avg300=0.31 total=5\nfull avg10=90.00 avg60=0 avg300=0 total=0\n")
    assert cpu_pressure_share(str(file)) == 0.255
    file.write_text("some avg10=x\n")
    assert cpu_pressure_share(str(file)) is None
    assert cpu_pressure_share(str(tmp_path / "none")) is None


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_text_is_read_without_an_error(mounts: str, groups: str) -> None:
    found = files_of_text(groups, parse_mounts(mounts))
    assert all("/../" not in path for path in found.cpu)
    files_of_text(groups, {"cpu": ("/x", "/"), "": ("/y", "/a"), "memory": ("/z", groups)})
