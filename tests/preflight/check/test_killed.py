"""Agents that are killed or stopped: the other side says so, and no rank outlives its agent."""

import signal
from collections.abc import Callable

import pytest

from tests.cli.patches import patched
from tests.cli.processes import LONG_SWEEP, ROLL, Job, Node, eventually
from tests.preflight.check.test_interrupted import names_the_one_that_left, roll_call, sweep

LITTLE_PATIENCE = """
import allready.messaging.hub as hub
hub.SILENCE_S = 3.0
import allready.messaging.link as link
assert link.SILENCE_S == 3.0
"""


def waiting(job: Job, victim: int) -> list[Node]:
    """As `roll_call`, for longer than a silent node is borne with."""
    nodes = [job.start(node, *ROLL, "--wait", "20", "--nnodes", "3") for node in (0, 1)]
    for node in nodes:
        node.until_reported(lambda report: report["status"] == "waiting" and report["roll"] is not None)
    return nodes


def test_a_killed_worker_in_the_roll_call_is_named_within_seconds(job: Job) -> None:
    nodes = roll_call(job, 1)
    nodes[1].signal(signal.SIGKILL)
    nodes[0].until_reported(lambda r: r["verdict"] is not None and r["verdict"]["fault_class"] == "DEAD", within_s=3.0)
    assert nodes[0].report["verdict"]["culprits"]["nodes"] == [1]
    assert nodes[1].wait(1.0) == -signal.SIGKILL
    names_the_one_that_left(nodes[0], 1, within_s=8.0)


def test_a_killed_node_0_in_the_roll_call_is_named_within_seconds(job: Job) -> None:
    nodes = roll_call(job, 0)
    nodes[0].signal(signal.SIGKILL)
    names_the_one_that_left(nodes[1], 0, within_s=3.0)
    assert nodes[0].wait(1.0) == -signal.SIGKILL


@pytest.mark.parametrize("victim", [pytest.param(0, id="node0", marks=pytest.mark.slow), pytest.param(1, id="worker")])
def test_an_agent_killed_in_the_sweep_takes_its_ranks_along_and_is_named(job: Job, victim: int) -> None:
    nodes = sweep(job, victim)
    of_victim = [p for p in job.ranks() if p.ppid() == nodes[victim].pid]
    assert len(of_victim) == 1
    nodes[victim].signal(signal.SIGKILL)
    eventually(
        lambda: not any(p.is_running() and p.status() != "zombie" for p in of_victim),
        within_s=2.0,
        what=lambda: f"{of_victim}",
    )
    names_the_one_that_left(nodes[1 - victim], victim, within_s=4.0)
    assert nodes[victim].wait(1.0) == -signal.SIGKILL
    job.assert_nothing_left()


@pytest.mark.slow
def test_a_killed_rank_is_named_with_its_signal_and_the_agents_live(job: Job) -> None:
    nodes = sweep(job, 1)
    [rank] = [p for p in job.ranks() if p.ppid() == nodes[1].pid]
    rank.kill()
    for node in nodes:
        assert node.wait(6.0) == 1
        verdict = node.report["verdict"]
        assert (verdict["fault_class"], verdict["culprits"]["ranks"]) == ("DEAD", [1])
        assert "SIGKILL" in verdict["sentence"]


def is_named_when_stopped(job: Job, nodes: list[Node], victim: int) -> None:
    stopped, other = nodes[victim], nodes[1 - victim]
    stopped.signal(signal.SIGSTOP)
    try:
        assert other.wait(25.0) == 1
        verdict = other.report["verdict"]
        # Its kernel acknowledges: neither its machine nor the path is gone.
        assert (verdict["culprits"]["nodes"], verdict["fault_class"]) == ([victim], "CPU-STUCK"), verdict
    finally:
        stopped.signal(signal.SIGCONT)
    # Once it runs again it finds its connection gone, and ends too; it accuses no other node.
    assert stopped.wait(25.0) in {1, 3}
    assert stopped.report["verdict"] is None or stopped.report["verdict"]["culprits"]["nodes"] != [1 - victim]
    job.assert_nothing_left()


def test_a_stopped_agent_is_named_and_nobody_hangs(job: Job) -> None:
    nodes = job.start_all(*LONG_SWEEP, env=patched(job.folder, LITTLE_PATIENCE))
    nodes[0].until_said("sweep:", within_s=60)
    is_named_when_stopped(job, nodes, 1)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1], ids=["node0", "worker"])
@pytest.mark.parametrize("at", [waiting, sweep])
def test_a_stopped_agent_is_named_with_the_patience_of_real_life(
    job: Job, at: Callable[[Job, int], list[Node]], victim: int
) -> None:
    is_named_when_stopped(job, at(job, victim), victim)
