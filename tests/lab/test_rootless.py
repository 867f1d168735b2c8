"""A lab made by an ordinary user: everything works, in a user namespace."""

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyroute2
import pytest

import allready

pytestmark = pytest.mark.lab

NOBODY = 65534
SCRIPT = """
import contextlib, json, os, sys, pathlib
from allready.lab import Lab, names
from allready.lab.faults import *
from allready.proc.process import is_running
from tests.lab.traffic import arriving, reach, reaches_within, say, seconds, serving
state = pathlib.Path(sys.argv[1])
seen = {"uid": os.getuid()}
with Lab.up(3, name="own", state_dir=state) as lab:
    seen["user_namespace"] = lab.record().user_namespace
    seen["inside"] = lab.run(1, ["sh", "-c", "hostname; id -u; ls /sys/class/net"]).stdout.split()
    with serving(lab, 0, 5000):
        seen["healthy"] = reach(lab, 1, "node0", 5000)
        with lab.apply(PortDropped(node=0, port=5000)) as fault:
            seen["port_dropped"] = [reach(lab, 1, "node0", 5000), fault.num_dropped() > 0]
        with lab.apply(MtuBlackHole(node=0)):
            seen["mtu_black_hole"] = [reach(lab, 1, "node0", 5000, 64), reach(lab, 1, "node0", 5000, 1400)]
        with lab.apply(SlowLink(node=0, rate_mbit_per_s=8)):
            seen["slow_link"] = seconds(lab, 1, "node0", 5000, 1_000_000) > 0.7
        with lab.apply(LinkDown(node=0)):
            seen["link_down"] = reach(lab, 1, "node0", 5000)
        seen["link_up"] = reaches_within(lab, 1, "node0", 5000)
    with lab.apply(OneWayDrop(source=0, target=1)):
        seen["one_way_drop"] = [arriving(lab, 0, 1), arriving(lab, 1, 0)]
    with lab.apply(HostsLoopback(node=0)):
        seen["hosts_loopback"] = say(lab, 0, "resolve", "node0")
    with lab.apply(TinyShm(node=0, size_bytes=1 << 20)):
        seen["tiny_shm"] = lab.run(0, ["dd", "if=/dev/zero", "of=/dev/shm/x", "bs=1024", "count=2048"]).returncode
    with lab.apply(SecondInterface(nodes=(0, 1))), lab.apply(InterfaceMtu(node=2, mtu_bytes=1300)):
        seen["second_interface"] = lab.run(0, ["ls", "/sys/class/net"]).stdout.split()
        seen["interface_mtu"] = lab.run(2, ["cat", "/sys/class/net/eth0/mtu"]).stdout.strip()
    process = lab.popen(0, ["sh", "-c", "setsid sleep 1000.65534 & exec sleep 1001.65534"])
    holders = lab.record().holders
seen["ended"] = process.returncode
seen["left"] = [names(state), state.exists()]
seen["mine"] = [holder.pid for holder in holders if is_running(holder)]
for entry in pathlib.Path("/proc").iterdir():
    with contextlib.suppress(OSError):  # it ended meanwhile; other labs of this user are none of our business
        words = (entry / "cmdline").read_bytes().split(bytes(1)) if entry.name.isdecimal() else []
        if words[:1] == [b"sleep"] and words[1].endswith(b".65534"):
            seen["mine"].append(int(entry.name))
print(json.dumps(seen))
"""


@functools.cache
def python_path() -> str:
    """Where an interpreter other than this environment's finds what the lab needs."""
    folders = [Path(module.__file__ or "").parents[1] for module in (allready, msgspec, pyroute2)]
    return ":".join(dict.fromkeys([str(Path(__file__).parents[2]), *map(str, folders)]))


def as_ordinary_user(*argv: str) -> list[str]:
    if os.geteuid() != 0:
        return list(argv)
    ids = ["--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
    # `env` starts the command after the change of user, so that an interpreter below /root is seen to be out of reach.
    return ["setpriv", *ids, "env", *argv]


@pytest.fixture(scope="module")
def interpreter() -> str:
    """A Python that an ordinary user can start and that can import what the lab needs."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        argv = as_ordinary_user(candidate, "-c", "import msgspec, pyroute2, tests.lab.traffic")
        environ = os.environ | {"PYTHONPATH": python_path()}
        if subprocess.run(argv, capture_output=True, check=False, timeout=60, env=environ, cwd="/").returncode == 0:
            return candidate
    pytest.skip("an ordinary user can start no Python of this version here")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that belongs to the ordinary user; pytest's own are closed to others."""
    path = Path(tempfile.mkdtemp(prefix="allready-rootless-"))
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    yield path
    shutil.rmtree(path)


def test_an_ordinary_user_has_a_lab_with_all_faults_and_nothing_is_left(interpreter: str, folder: Path) -> None:
    argv = as_ordinary_user(interpreter, "-c", SCRIPT, str(folder / "labs"))
    environ = os.environ | {"PYTHONPATH": python_path(), "PYTHONDONTWRITEBYTECODE": "1"}
    environ.pop("XDG_RUNTIME_DIR", None)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100, check=False, env=environ, cwd="/")
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen.pop("uid") != 0
    assert seen.pop("link_down") in {"silent", "no-route"}
    assert seen == {
        "user_namespace": True,
        "inside": ["node1", "0", "eth0", "lo"],
        "healthy": "ok",
        "port_dropped": ["silent", True],
        "mtu_black_hole": ["ok", "stuck"],
        "slow_link": True,
        "link_up": True,
        "one_way_drop": [0, 5],
        "hosts_loopback": "127.0.1.1",
        "tiny_shm": 1,
        "second_interface": ["docker0", "eth0", "lo"],
        "interface_mtu": "1300",
        "ended": -9,
        "left": [[], False],
        "mine": [],
    }
