"""Scenarios: commands and faults at their times."""

import pytest

from allready.errors import UsageError
from allready.lab import Command, Lab, run_scenario
from allready.lab.faults import DoNotStart, HostsEntry, LinkDown, PortDropped, StartLate, TinyShm

from .traffic import PYTHON

pytestmark = pytest.mark.lab

HOSTS = ["cat", "/etc/hosts"]


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def test_gives_exit_code_and_output_of_every_node(lab2: Lab) -> None:
    result = run_scenario(lab2, {0: shell("hostname; exit 3"), 1: shell("hostname >&2; kill -9 $$")}, timeout_s=20)
    first, second = result.nodes[0], result.nodes[1]
    assert (first.returncode, first.stdout, first.stderr, first.timed_out) == (3, "node0\n", "", False)
    assert (second.returncode, second.stdout, second.stderr) == (-9, "", "node1\n")
    assert first.start_s is not None
    assert first.end_s is not None
    assert 0 <= first.start_s <= first.end_s <= result.duration_s


def test_passes_each_node_its_own_variables(lab2: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_OUTSIDE", "yes")
    show = shell("echo $NCCL_DEBUG,$FROM_OUTSIDE")
    commands = {0: Command(argv=show, env={"NCCL_DEBUG": "INFO"}), 1: Command(argv=show, env={"FROM_OUTSIDE": None})}
    result = run_scenario(lab2, commands, timeout_s=20)
    assert [result.nodes[n].stdout for n in (0, 1)] == ["INFO,yes\n", ",\n"]


def test_a_node_that_must_not_start_does_not_and_a_late_one_is_late(lab3: Lab) -> None:
    faults = [DoNotStart(node=1), StartLate(node=2, delay_s=0.7)]
    result = run_scenario(lab3, {n: ["true"] for n in range(3)}, faults, timeout_s=20)
    absent, late = result.nodes[1], result.nodes[2]
    assert (absent.returncode, absent.start_s, absent.end_s, absent.timed_out) == (None, None, None, False)
    assert late.returncode == 0
    assert late.start_s is not None
    assert late.start_s >= 0.7


def test_what_still_runs_at_the_end_is_killed_with_its_children(lab2: Lab) -> None:
    result = run_scenario(lab2, {0: shell("sleep 1000 & sleep 1000"), 1: ["true"]}, timeout_s=0.5)
    assert result.nodes[0].timed_out
    assert result.nodes[0].returncode == -9
    assert not result.nodes[1].timed_out
    assert result.duration_s >= 0.5
    assert lab2.status()["commands"] == []


def test_faults_hold_from_the_first_moment_or_from_their_time_and_all_are_lifted(lab2: Lab) -> None:
    faults = [
        HostsEntry(node=0, name="early", address="10.0.0.1"),
        HostsEntry(node=0, name="later", address="10.0.0.2", start_s=0.3, end_s=0.9),
    ]
    script = "cat /etc/hosts; until grep -q later /etc/hosts; do sleep 0.02; done; echo came;"
    script += "while grep -q later /etc/hosts; do sleep 0.02; done; echo went"
    result = run_scenario(lab2, {0: shell(script), 1: ["true"]}, faults, timeout_s=20)
    out = result.nodes[0].stdout
    assert out.index("early") < out.index("came") < out.index("went")
    assert "later" not in out[: out.index("came")]
    assert result.nodes[0].end_s is not None
    assert result.nodes[0].end_s >= 0.9
    assert lab2.faults() == {}
    assert "early" not in lab2.run(0, HOSTS).stdout


def test_a_cable_pulled_in_the_middle_is_felt_by_both_sides(lab2: Lab) -> None:
    wait = 'for i in $(seq 500); do [ "$(cat /sys/class/net/eth0/carrier)" = 0 ] && exit 5; sleep 0.02; done'
    result = run_scenario(lab2, {0: shell(wait), 1: ["true"]}, [LinkDown(node=0, start_s=0.2)], timeout_s=30)
    assert result.nodes[0].returncode == 5


def test_a_client_behind_a_firewall_and_one_in_front_end_differently(lab3: Lab) -> None:
    commands = {
        0: [*PYTHON, "serve", "0.0.0.0", "29500"],
        1: shell(f"{' '.join(PYTHON)} connect node0 29500 64"),
        2: shell(f"until {' '.join(PYTHON)} connect node0 29500 64 | grep -v refused; do sleep 0.1; done"),
    }
    result = run_scenario(lab3, commands, [PortDropped(node=0, port=29500, source=1)], timeout_s=5)
    assert result.nodes[0].timed_out
    assert result.nodes[1].stdout == "silent\n"
    assert result.nodes[2].stdout.startswith("ok ")


def test_after_an_error_nothing_runs_and_no_fault_is_left(lab2: Lab) -> None:
    with pytest.raises(UsageError, match="has changed this already"):
        run_scenario(lab2, {0: ["sleep", "1000"]}, [TinyShm(node=0), TinyShm(node=0, start_s=0.2)], timeout_s=20)
    assert lab2.status()["commands"] == []
    assert lab2.faults() == {}


def test_refuses_nodes_that_are_not_there(lab2: Lab) -> None:
    with pytest.raises(UsageError, match="no node 2"):
        run_scenario(lab2, {2: ["true"]}, timeout_s=1)
    with pytest.raises(UsageError, match="no node 5"):
        run_scenario(lab2, {0: ["true"]}, [DoNotStart(node=5)], timeout_s=1)
