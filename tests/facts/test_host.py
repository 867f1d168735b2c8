import os
import socket
import threading
import time
from pathlib import Path

import psutil
import pytest

from allready.errors import DeadlineExceeded, FactUnavailable
from allready.facts.live import LiveHost
from allready.facts.tasks import Task
from tests.cases import cases
from tests.clock import Deadline, Stopwatch
from tests.facts.helpers import json_in_namespace
from tests.facts.saved_host import SavedHost


def gone(pid: int) -> bool:
    """Ended; a zombie that init has not yet reaped has ended too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_reads_files_and_says_why_not(tmp_path: Path) -> None:
    host = LiveHost()
    (tmp_path / "a").write_bytes(b"x\xff\n")
    os.mkfifo(tmp_path / "pipe")
    assert host.read(str(tmp_path / "a")) == "x�\n"
    for name, words in (
        ("none", "No such file"),
        ("pipe", "not a regular file"),
        ("", "a directory"),
        ("a/b", "Not a dir"),
    ):
        with pytest.raises(FactUnavailable, match=words):
            host.read(f"{tmp_path}/{name}")
    with pytest.raises(FactUnavailable, match="null"):
        host.read("/tmp/\0")


def test_refuses_a_file_of_absurd_size(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(17 * 2**20)
    with pytest.raises(FactUnavailable, match="larger than 16 MiB"):
        LiveHost().read(str(tmp_path / "big"))


def test_lists_directories() -> None:
    assert "self" in LiveHost().listdir("/proc")
    with pytest.raises(FactUnavailable, match="No such"):
        LiveHost().listdir("/nowhere")


def test_runs_commands_and_says_why_not() -> None:
    host = LiveHost()
    assert host.run(["echo", "a b"], timeout_s=10) == "a b\n"
    for argv, words in (
        (["no-such-program"], "not installed"),
        (["/no/such/program"], "No such file"),
        (["sh", "-c", "echo one >&2; echo two >&2; exit 3"], "sh: exit code 3: two"),
        (["sh", "-c", "kill -9 $$"], "signal 9"),
    ):
        with pytest.raises(FactUnavailable, match=words):
            host.run(argv, timeout_s=10)


def test_finds_administrators_tools_without_a_path() -> None:
    assert LiveHost({"PATH": ""}).run(["true"], timeout_s=10) == ""


@pytest.mark.parametrize("leader", ["wait", "exit 0"])
def test_ends_the_whole_group_at_the_deadline(tmp_path: Path, leader: str) -> None:
    """Also when the command itself has ended and only what it started still holds the output."""
    started = Stopwatch()
    with pytest.raises(FactUnavailable, match="no answer within"):
        LiveHost().run(["sh", "-c", f"sleep 1000 & echo $! > {tmp_path}/pid; {leader}"], timeout_s=0.5)
    assert started.s < 10
    pid = int((tmp_path / "pid").read_text())
    until = Deadline(10)
    while not gone(pid) and not until.passed():
        time.sleep(0.02)
    assert gone(pid)


def test_a_child_that_ignores_sigterm_is_ended_and_reaped() -> None:
    before = set(psutil.Process().children())  # other tests' labs may live in this process
    with pytest.raises(FactUnavailable):
        LiveHost().run(["sh", "-c", "trap '' TERM INT; sleep 1000"], timeout_s=0.3)
    assert set(psutil.Process().children()) <= before


def test_a_child_has_a_session_of_its_own() -> None:
    """Ctrl-C in the terminal must not reach it before we decide."""
    sid = int(LiveHost().run(["sh", "-c", "cut -d' ' -f6 /proc/$$/stat"], timeout_s=10))
    assert sid != os.getsid(0)


def test_resolves_names_and_gives_the_resolvers_words() -> None:
    host = LiveHost()
    assert host.resolve("127.0.0.1", timeout_s=10) == ("127.0.0.1",)
    assert host.resolve("fe80::1%lo", timeout_s=10) == ("fe80::1",)
    assert set(host.resolve("localhost", timeout_s=10)) <= {"127.0.0.1", "::1"}
    for name in ("no-such-host.invalid", "", "a" * 300, "a..b", "x\0y"):
        with pytest.raises(FactUnavailable, match=r"\S"):
            host.resolve(name, timeout_s=10)


def test_a_dead_dns_server_cannot_hang_it() -> None:
    waited, words = json_in_namespace(
        """
        ip link set lo up
        echo nameserver 127.0.0.1 > /tmp/allready-resolv.$$; echo 'hosts: dns' > /tmp/allready-nss.$$
        [ -e /etc/resolv.conf ] || touch /etc/resolv.conf
        mount --bind /tmp/allready-resolv.$$ /etc/resolv.conf; mount --bind /tmp/allready-nss.$$ /etc/nsswitch.conf
        rm -f /tmp/allready-resolv.$$ /tmp/allready-nss.$$
        $PYTHON -c '
import json, socket, time
from allready.errors import FactUnavailable
from allready.facts.live import LiveHost
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mute:
    mute.bind(("127.0.0.1", 53))
    started = time.monotonic()
    try:
        LiveHost().resolve("gpu01", timeout_s=0.4); words = "resolved"
    except FactUnavailable as error:
        words = str(error)
    print(json.dumps([time.monotonic() - started, words]))'
        """,
        "mount",
        mount=True,
    )
    assert words == "no answer from the resolver within 0.4 s"
    assert waited < 5


@cases("name", ["statvfs:/nowhere", "digest:/nowhere", "digest:/", "user:99999999", "user:x", "other", ""])
def test_probes_say_why_not(name: str) -> None:
    with pytest.raises(FactUnavailable, match=r"\S"):
        LiveHost().probe(name, timeout_s=10)


def test_probes_answer() -> None:
    host = LiveHost()
    assert host.probe("user:0", timeout_s=10) == "root"
    assert host.probe("statvfs:/", timeout_s=10)["total_bytes"] > 0
    assert host.probe("python", timeout_s=10)["version"].startswith("3.")
    with socket.create_server(("127.0.0.1", 0)) as server:
        inode = os.fstat(server.fileno()).st_ino
        assert host.probe(f"socket_owner:{inode}", timeout_s=10) == os.getpid()
    assert host.probe("socket_owner:0", timeout_s=10) is None


def test_a_saved_answer_of_the_wrong_shape_is_unavailable() -> None:
    host = SavedHost({"files": {"a": 3}, "dirs": {"a": "x"}, "commands": {"a": []}, "names": {"a": [1]}})
    for ask in (
        lambda: host.read("a"),
        lambda: host.listdir("a"),
        lambda: host.run(["a"], timeout_s=1),
        lambda: host.resolve("a", timeout_s=1),
    ):
        with pytest.raises(FactUnavailable, match="saved answer"):
            ask()


def test_a_task_gives_value_error_or_gives_up() -> None:
    stop = threading.Event()
    assert Task(lambda: 5, "t").result(timeout_s=10) == 5
    slow = Task(lambda: stop.wait(30), "t")
    with pytest.raises(DeadlineExceeded):
        slow.result(timeout_s=0.05)
    stop.set()
    assert slow.result(timeout_s=10) is True

    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        Task(fail, "t").result(timeout_s=10)
