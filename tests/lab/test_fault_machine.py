"""Faults of names and shared memory."""

from pathlib import Path

import pytest

from allready.errors import UsageError
from allready.lab import Lab
from allready.lab.faults import DoNotStart, HostsEntry, HostsLoopback, HostsMissing, TinyShm

from .traffic import reach, say, serving

pytestmark = pytest.mark.lab

WRITE_2_MIB = ["dd", "if=/dev/zero", "of=/dev/shm/big", "bs=1024", "count=2048"]


def test_hosts_loopback_changes_one_name_on_one_node(lab2: Lab) -> None:
    with lab2.apply(HostsLoopback(node=0)):
        assert (say(lab2, 0, "resolve", "node0"), say(lab2, 0, "resolve", "node1")) == ("127.0.1.1", "10.77.0.2")
        assert say(lab2, 1, "resolve", "node0") == "10.77.0.1"
    assert say(lab2, 0, "resolve", "node0") == "10.77.0.1"


def test_a_master_bound_to_its_loopback_name_cannot_be_reached(lab2: Lab) -> None:
    with lab2.apply(HostsLoopback(node=0)), serving(lab2, 0, 29500, "node0"):
        assert reach(lab2, 0, "node0", 29500) == "ok"
        assert reach(lab2, 1, "node0", 29500) == "refused"


def test_a_worker_that_takes_the_master_for_loopback_meets_itself(lab2: Lab) -> None:
    with lab2.apply(HostsLoopback(node=1, name="node0")), serving(lab2, 0, 29500):
        assert reach(lab2, 1, "node0", 29500) == "refused"


def test_hosts_faults_of_several_names_are_lifted_in_any_order(lab2: Lab) -> None:
    entry = lab2.apply(HostsEntry(node=1, name="node0", address="10.77.0.99"))
    missing = lab2.apply(HostsMissing(node=1, name="node1"))
    extra = lab2.apply(HostsEntry(node=1, name="master", address="10.77.0.1"))
    assert [say(lab2, 1, "resolve", n) for n in ("node0", "node1", "master")] == [
        "10.77.0.99",
        "unresolved",
        "10.77.0.1",
    ]
    entry.undo()
    assert [say(lab2, 1, "resolve", n) for n in ("node0", "node1", "master")] == [
        "10.77.0.1",
        "unresolved",
        "10.77.0.1",
    ]
    extra.undo()
    missing.undo()
    assert [say(lab2, 1, "resolve", n) for n in ("node0", "node1", "master")] == [
        "10.77.0.1",
        "10.77.0.2",
        "unresolved",
    ]


def test_tiny_shm_is_full_at_once_and_only_on_that_node(lab2: Lab) -> None:
    with lab2.apply(TinyShm(node=0, size_bytes=1024**2)):
        assert "No space left" in lab2.run(0, WRITE_2_MIB).stderr
        assert lab2.run(1, WRITE_2_MIB).returncode == 0
    assert lab2.run(0, WRITE_2_MIB).returncode == 0
    assert not Path("/dev/shm/big").exists()


def test_a_running_lab_cannot_have_faults_of_the_launch(lab2: Lab) -> None:
    with pytest.raises(UsageError, match="a running lab cannot have it"):
        lab2.apply(DoNotStart(node=0))


def test_a_fault_for_a_node_that_is_not_there_is_refused(lab2: Lab) -> None:
    with pytest.raises(UsageError, match="no node 2; the lab has node 0 to 1"):
        lab2.apply(TinyShm(node=2))
