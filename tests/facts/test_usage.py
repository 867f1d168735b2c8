"""What is used up or left over: real sockets, locks and disks of this machine, and answers of machines made up."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from allready.facts.live import LiveHost
from allready.facts.usage import collect_usage
from tests.cases import cases
from tests.clock import until
from tests.facts.helpers import json_in_namespace
from tests.facts.saved_host import SavedHost

HOLD = "import os, sys, time; os.open(sys.argv[1], os.O_CREAT | os.O_EXCL); print('held', flush=True); time.sleep(60)"


def test_a_listener_is_named_with_its_process_and_a_free_port_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = collect_usage(LiveHost(), ports=(port, port))
        [listener] = found.listeners
        assert (listener.port, listener.holder.pid) == (port, os.getpid())
        assert found.free_port is None or found.free_port > port


def test_the_disks_of_this_machine_have_room() -> None:
    found = collect_usage(LiveHost({"HOME": "/", "TMPDIR": "/dev/shm", "PWD": "/nowhere"}), ports=None)
    assert {v.path for v in found.volumes} == {"/", "/dev/shm"}
    assert all(v.total_bytes > 0 for v in found.volumes)


def test_a_full_disk_is_seen() -> None:
    found = json_in_namespace(
        "mkdir -p /tmp/small && mount -t tmpfs -o size=1m none /tmp/small && "
        "{ head -c 2M /dev/zero > /tmp/small/x 2>/dev/null || true; } && "
        '$PYTHON -c "import json; from allready.facts.live import LiveHost; '
        "from allready.facts.usage import collect_usage; "
        "v = collect_usage(LiveHost({'TMPDIR': '/tmp/small'}), ports=None).volumes[0]; "
        'print(json.dumps([v.path, v.free_bytes]))"',
        "mount",
        mount=True,
    )
    assert found == ["/tmp/small", 0]


def test_a_lock_is_held_while_its_build_runs_and_stale_once_it_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "py311_cpu" / "fused_adam"
    folder.mkdir(parents=True)
    host = LiveHost({"TORCH_EXTENSIONS_DIR": str(tmp_path)})
    assert collect_usage(host, ports=None).locks == ()
    with subprocess.Popen([sys.executable, "-c", HOLD, str(folder / "lock")], stdout=subprocess.PIPE) as build:
        try:
            assert build.stdout is not None
            assert build.stdout.readline() == b"held\n"
            [lock] = collect_usage(host, ports=None).locks
            assert (lock.path, lock.is_held) == (str(folder / "lock"), True)
        finally:
            build.kill()
    until(lambda: not collect_usage(host, ports=None).locks[0].is_held, 10.0, what=lambda: "the killed build's lock")
    os.utime(folder / "lock", (0, 0))
    assert collect_usage(host, ports=None).locks[0].age_s > 10**9


def machine(init: str, parent: int, first: str = "", **variables: str) -> SavedHost:
    """Process 77, child of `parent`, on a machine whose first process is `init`, with `first` as its environment."""
    stat = f"77 (python) S {parent} 77 77 0 -1 0 0 0 0 0 10 10 0 0 20 0 1 0 500 1000000 100 " + "0 " * 30
    files: dict[str, Any] = {
        "/proc/1/comm": f"{init}\n",
        "/proc/1/cmdline": f"/usr/bin/{init}\0",
        "/proc/1/environ": first,
        "/proc/77/stat": stat,
        "/proc/77/cmdline": "python\0train.py\0",
        "/proc/77/environ": "".join(f"{name}={value}\0" for name, value in variables.items()),
    }
    return SavedHost({"files": files, "dirs": {"/proc": ["1", "77", "self"]}})


RANK = {"LOCAL_RANK": "3", "RANK": "11", "TORCHELASTIC_RUN_ID": "none"}


def test_a_rank_whose_parent_is_init_is_left_over() -> None:
    [left] = collect_usage(machine("systemd", 1, **RANK), ports=None).leftovers
    assert (left.pid, left.rank, left.command) == (77, "11", "python train.py")


def test_a_group_of_version_1_counts_as_well() -> None:
    group = "/sys/fs/cgroup/memory"
    files = {
        "/proc/self/cgroup": "4:memory:/docker/abc\n3:cpu,cpuacct:/\n",
        f"{group}/docker/abc/memory.limit_in_bytes": "1000\n",
        f"{group}/docker/abc/memory.usage_in_bytes": "980\n",
        f"{group}/docker/abc/memory.stat": "inactive_file 1\ntotal_inactive_file 20\ntotal_active_file 10\n",
        f"{group}/memory.limit_in_bytes": "9223372036854771712\n",
        f"{group}/memory.usage_in_bytes": "5000\n",
    }
    found = collect_usage(SavedHost({"files": files}), ports=None)
    assert (found.memory_limit_bytes, found.memory_used_bytes) == (1000, 950)


def test_a_helper_of_our_own_is_not_left_over() -> None:
    host = machine("systemd", 1, **RANK)
    answers: dict[str, Any] = {
        **host._answers,
        "files": {**host._answers["files"], "/proc/77/cmdline": "python\0-m\0allready.runtime.hub\0"},
    }
    assert collect_usage(SavedHost(answers), ports=None).leftovers == ()


def test_in_a_container_whose_first_process_is_no_launcher_as_well() -> None:
    for init in ("bash", "sleep", "process_api"):
        for first in ("PATH=/bin\0", ""):  # the latter: of another user
            [left] = collect_usage(machine(init, 1, first, **RANK), ports=None).leftovers
            assert left.pid == 77, init


@cases(
    "host",
    [
        machine("systemd", 50, **RANK),  # its launcher lives
        machine("systemd", 1, RANK="11"),  # started by hand, or a launcher
        machine("torchrun", 1, **RANK),  # the launcher is the container's first process
        machine("python3.11", 1, "PATH=/bin\0", **RANK),
        machine("bash", 1, "LOCAL_RANK=3\0", **RANK),  # of a container that the rank started
        SavedHost({}),
    ],
    ids=[
        "launcher lives",
        "no rank of torchrun",
        "torchrun is first",
        "python is first",
        "a container of a rank",
        "nothing known",
    ],
)
def test_other_processes_are_not_left_over(host: SavedHost) -> None:
    assert collect_usage(host, ports=None).leftovers == ()


def test_memory_of_files_is_not_counted_and_the_fullest_group_counts() -> None:
    group = "/sys/fs/cgroup"
    files = {
        "/proc/self/cgroup": "0::/job/step\n",
        f"{group}/job/memory.max": "1000\n",
        f"{group}/job/memory.current": "950\n",
        f"{group}/job/memory.stat": "anon 100\ninactive_file 700\nactive_file 50\n",
        f"{group}/job/step/memory.max": "max\n",
        f"{group}/job/step/memory.current": "900\n",
    }
    found = collect_usage(SavedHost({"files": files}), ports=None)
    assert (found.memory_limit_bytes, found.memory_used_bytes) == (1000, 200)


def test_tracked_connections_are_read_where_there_is_a_table() -> None:
    root = "/proc/sys/net/netfilter/nf_conntrack"
    found = collect_usage(SavedHost({"files": {f"{root}_count": "7\n", f"{root}_max": "9\n"}}), ports=None)
    assert (found.num_tracked, found.max_tracked) == (7, 9)
    assert collect_usage(SavedHost({}), ports=None).num_tracked is None


def test_two_interfaces_in_one_network_have_twin_routes() -> None:
    routes = json_in_namespace(
        "ip link add du0 type veth peer name du2; ip link add du1 type veth peer name du3; "
        "ip addr add 10.9.0.1/24 dev du0; "
        "ip addr add 10.9.0.2/24 dev du1; for i in 0 1 2 3; do ip link set du$i up; done; "
        '$PYTHON -c "import json; from allready.facts.live import LiveHost; '
        "from allready.facts.net import collect_net; "
        'print(json.dumps([[r.destination, r.interface, r.metric] for r in collect_net(LiveHost()).routes]))"'
    )
    assert [r for r in routes if r[0] == "10.9.0.0/24"] == [["10.9.0.0/24", "du0", 0], ["10.9.0.0/24", "du1", 0]]


LEAVE_ZOMBIES = """
import os, sys, time
for _ in range(int(sys.argv[1])):
    if not os.fork():
        os._exit(0)
print("left", flush=True)
time.sleep(120)
"""


def test_children_that_are_not_reaped_are_counted_with_their_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", LEAVE_ZOMBIES, "120"], stdout=subprocess.PIPE) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == b"left\n"
            until(lambda: _count() >= 120, 20.0, what=_count)
            found = collect_usage(LiveHost(), ports=None)
            assert found.zombie_parent is not None
            assert (found.zombie_parent.pid, found.num_parents_zombies) == (parent.pid, 120)
        finally:
            parent.kill()


def _count() -> int:
    return collect_usage(LiveHost(), ports=None).num_zombies or 0


def test_ports_of_a_rank_that_is_left_over() -> None:
    """A real process that listens, with the answers of a machine whose init has it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        inode = os.fstat(server.fileno()).st_ino
        assert inode in LiveHost().probe(f"sockets:{os.getpid()}", timeout_s=5)
        stat = "77 (python) S 1 77 77 0 -1 0 0 0 0 0 10 10 0 0 20 0 1 0 500 1000000 100 " + "0 " * 30
        files = {
            "/proc/1/comm": "systemd\n",
            "/proc/77/stat": stat,
            "/proc/77/environ": "".join(f"{name}={value}\0" for name, value in RANK.items()),
            "/proc/net/tcp": LiveHost().read("/proc/net/tcp"),
        }
        host = SavedHost({"files": files, "dirs": {"/proc": ["1", "77"]}, "probes": {"sockets:77": [inode, 3]}})
        [left] = collect_usage(host, ports=None).leftovers
        assert left.ports == (server.getsockname()[1],)


def test_workers_of_a_data_loader_are_counted_by_their_program() -> None:
    """Real processes with the name that torch gives to its workers."""
    program = (
        "import ctypes, os, sys, time\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0:\n"
        "        ctypes.CDLL(None).prctl(15, b'pt_data_worker'); os.write(1, b'named\\n'); time.sleep(60)\n"
        "        os._exit(0)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True) as training:
        try:
            assert training.stdout is not None
            assert [training.stdout.readline() for _ in range(3)] == [b"named\n"] * 3
            found = [one for one in collect_usage(LiveHost(), ports=None).loaders if one.pid == training.pid]
            assert [one.num_workers for one in found] == [3]
            assert found[0].cpus
        finally:
            os.killpg(training.pid, signal.SIGKILL)
