"""Labs come and go, and leave nothing."""

import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from allready.errors import DeadlineExceeded, LabError, UsageError
from allready.lab import Lab, holders, names, probe, record, take_down
from allready.lab.faults import PortDropped
from allready.lab.lifecycle import belonging_to
from allready.proc.kill import kill_all
from allready.proc.process import ProcessId, identify, is_running
from tests.clock import Stopwatch

lab = pytest.mark.lab

SCENES = (
    "normal", "exception", "commands", "two_labs", "killed_half_way", "killed_when_up", "killed_with_commands",
    "holder_killed", "refused", "scored_stand_in",
    "score_ended_by_a_signal",
)  # fmt: skip


SLOW_IN_BOTH = ("scored_stand_in", "killed_half_way", "killed_with_commands", "two_labs", "score_ended_by_a_signal")


@lab
@pytest.mark.parametrize("scene", SCENES)
def test_nothing_is_left_by_root(scene: str) -> None:
    nothing_is_left(scene, user_namespace=False)


@lab
@pytest.mark.parametrize(
    "scene", [pytest.param(s, marks=pytest.mark.slow if s in SLOW_IN_BOTH else ()) for s in SCENES]
)
def test_nothing_is_left_in_a_user_namespace(scene: str) -> None:
    nothing_is_left(scene, user_namespace=True)


def nothing_is_left(scene: str, *, user_namespace: bool) -> None:
    if not user_namespace and holders.needs_user_namespace():
        pytest.skip("not root")
    user = ["--user", "--map-root-user"] if user_namespace else []
    alone = ["unshare", *user, "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net"]
    done = subprocess.run(
        [*alone, sys.executable, "-m", "tests.lab.leftovers", scene],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env=os.environ | {"LEFTOVERS_ID": uuid.uuid4().hex},
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["after"] == seen["before"]
    expected = {
        "commands": "11 hidden",
        "refused": "LabError: this machine refuses a namespace of the lab: mount: ",
        "scored_stand_in": "missed",
        "scored": "right",
        "score_ended_by_a_signal": "exit code 143, 0 results",
    }
    assert seen["note"].startswith(expected.get(scene, "")), seen["note"]


@lab
@pytest.mark.slow
@pytest.mark.parametrize("scene", ["scored", "scored_for_memory"])
def test_nothing_is_left_of_a_real_job(scene: str) -> None:
    nothing_is_left(scene, user_namespace=False)


@lab
def test_a_second_lab_of_the_same_name_is_refused_and_harms_nothing(lab2: Lab) -> None:
    with pytest.raises(UsageError, match=f"the lab '{lab2.name}' already exists; .* allready lab down --name"):
        Lab.up(2, name=lab2.name, state_dir=lab2.folder.parent)
    assert lab2.run(1, ["hostname"]).stdout == "node1\n"


@lab
def test_another_process_can_use_the_lab_by_its_name(lab2: Lab) -> None:
    other = Lab.attach(lab2.name, state_dir=lab2.folder.parent)
    fault = other.apply(PortDropped(node=0, port=29500))
    assert lab2.faults() == {fault.id: PortDropped(node=0, port=29500)}
    lab2.lift(fault.id)
    assert other.faults() == {}


@lab
def test_labs_of_tests_are_not_among_the_users_labs(lab2: Lab) -> None:
    assert lab2.name not in names()
    assert lab2.name in names(lab2.folder.parent)


@lab
def test_a_lab_is_up_and_down_in_no_time(make_lab: Callable[..., Lab]) -> None:
    begun = Stopwatch()
    four = make_lab(4)
    assert begun.s < 20  # 0.3 s on an idle machine with two cores; this is no benchmark
    begun = Stopwatch()
    four.down()
    assert begun.s < 10  # 0.01 s


@lab
def test_nodes_have_names_addresses_and_devices_of_their_own(make_lab: Callable[..., Lab]) -> None:
    one = make_lab(3, subnet="192.168.9.0/28", subnet6="fd01::/64", mtu_bytes=9000)
    assert [one.view.address(n) for n in range(3)] == ["192.168.9.1", "192.168.9.2", "192.168.9.3"]
    out = one.run(
        2, ["sh", "-c", "hostname; ls /sys/class/net; cat /sys/class/net/eth0/mtu; grep node0 /etc/hosts"]
    ).stdout
    assert out.split() == ["node2", "eth0", "lo", "9000", "192.168.9.1", "node0", "fd01::1", "node0-v6"]
    ipv4_only = make_lab(1, subnet6="")
    assert ipv4_only.view.address6(0) is None
    assert os.uname().nodename != "node2"


@lab
def test_commands_keep_folder_environment_input_and_exit_code(lab2: Lab, tmp_path: Path) -> None:
    script = 'pwd; echo "$A-${HOME+home}"; cat; exit 42'
    done = lab2.run(1, ["sh", "-c", script], env={"A": "a b", "HOME": None}, cwd=tmp_path, input="line")
    assert (done.returncode, done.stdout) == (42, f"{tmp_path}\na b-\nline")
    assert lab2.run(0, ["no-such-command"]).returncode == 127
    with lab2.popen(0, ["sleep", "1000"]) as process:
        assert os.getsid(process.pid) == process.pid
        process.kill()


@lab
def test_a_command_that_takes_too_long_is_killed(lab2: Lab) -> None:
    with pytest.raises(DeadlineExceeded, match=r"sleep 1000 in node0 still ran after 0\.3 s"):
        lab2.run(0, ["sleep", "1000"], timeout_s=0.3)
    assert lab2.status()["commands"] == []


@lab
def test_refuses_nodes_and_names_that_are_not_there(lab2: Lab) -> None:
    with pytest.raises(UsageError, match="no node 2"):
        lab2.run(2, ["true"])
    with pytest.raises(UsageError, match="no command"):
        lab2.run(0, [])
    with pytest.raises(UsageError, match="no active fault 9"):
        lab2.lift(9)
    with pytest.raises(UsageError, match="there is no lab 'nobody'"):
        Lab.attach("nobody")
    with pytest.raises(UsageError, match="there is no lab 'nobody'"):
        take_down("nobody")
    for name in ("", "a/b", "..", "a b", "x" * 41):
        with pytest.raises(UsageError, match="not a valid lab name"):
            Lab.up(1, name=name)


@lab
def test_a_lab_that_lost_a_node_says_so(make_lab: Callable[..., Lab]) -> None:
    broken = make_lab(2)
    kill_all([broken.record().nodes[1]], timeout_s=5)
    with pytest.raises(LabError, match="is not whole; remove it with: allready lab down --name"):
        broken.run(0, ["true"])


@lab
def test_a_lab_that_is_gone_altogether_is_replaced(tmp_path: Path) -> None:
    state = tmp_path / "labs"
    first = Lab.up(1, name="a", state_dir=state)
    kill_all(first.record().holders, timeout_s=5)
    with Lab.up(1, name="a", state_dir=state) as second:
        assert second.run(0, ["hostname"]).stdout == "node0\n"
    assert not state.exists()


@lab
def test_without_nft_a_filter_says_which_package_is_missing(lab2: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    real = holders.tool

    def without_nft(name: str, package: str) -> str:
        return real("nft-that-is-not-there" if name == "nft" else name, package)

    monkeypatch.setattr(holders, "tool", without_nft)
    with pytest.raises(LabError, match="apt-get install nftables"):
        lab2.apply(PortDropped(node=0, port=1))
    assert lab2.faults() == {}


@lab
def test_where_user_namespaces_are_forbidden_the_reason_is_told() -> None:
    script = "import sys; from allready.lab import probe, Lab; sys.stdout.write(str(probe()))"
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-sys_admin "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", forbid, sys.executable, script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "this machine refuses a namespace of the lab: unshare: " in done.stdout
    assert "user namespaces are forbidden by user.max_user_namespaces = 0: run as root" in done.stdout


@lab
@pytest.mark.parametrize("kind", ["net", "mnt"])
def test_a_limit_of_no_namespaces_is_named(kind: str) -> None:
    script = "import sys; from allready.lab import probe; sys.stdout.write(str(probe()))"
    forbid = f'echo 0 > /proc/sys/user/max_{kind}_namespaces && exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", forbid, sys.executable, script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"; namespaces are forbidden by user.max_{kind}_namespaces = 0")


@lab
def test_the_probe_finds_a_lab_possible_and_leaves_no_lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = names()
    assert probe(packet_filters=True) is None
    assert list(tmp_path.iterdir()) == []
    assert [name for name in names() if name not in before and name.startswith(f"probe-{os.getpid()}")] == []


def test_a_pid_that_was_reused_is_neither_found_nor_ended() -> None:
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as process:
        now = identify(process.pid)
        assert now is not None
        before = ProcessId(pid=now.pid, start_ticks=now.start_ticks - 1)
        assert not is_running(before)
        assert belonging_to([before], frozenset()) == set()
        assert kill_all([before], timeout_s=1) == set()
        assert process.poll() is None
        assert belonging_to([now], frozenset()) == {now}
        assert kill_all([now], timeout_s=5) == set()
        assert process.wait() == -9
    assert identify(process.pid) is None


def test_a_state_folder_that_others_could_write_to_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "labs"
    state.mkdir(mode=0o777)
    state.chmod(0o777)
    with pytest.raises(LabError, match="mode 0700"):
        record.create(state, "a")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(LabError, match="mode 0700"):
        record.create(tmp_path / "link", "a")


@pytest.mark.parametrize(
    ("text", "says"), [("", "is not a record"), ("[]", "is not a record"), ('{"version": 1}', "is not a record")]
)
def test_a_damaged_record_is_an_error_and_not_an_instruction(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "labs").mkdir(mode=0o700)
    folder = record.create(tmp_path / "labs", "a")
    (folder / "record.json").write_text(text)
    with pytest.raises(LabError, match=says):
        take_down("a", tmp_path / "labs")


def test_a_lab_whose_creator_was_killed_before_it_wrote_anything_can_be_taken_down(tmp_path: Path) -> None:
    (tmp_path / "labs").mkdir(mode=0o700)
    record.create(tmp_path / "labs", "a")
    with pytest.raises(LabError, match="is not whole"):
        Lab.attach("a", state_dir=tmp_path / "labs")
    take_down("a", tmp_path / "labs")
    assert not (tmp_path / "labs").exists()
