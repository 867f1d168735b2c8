"""Roll call and facts of many nodes, as processes on this machine."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import ROLL, Job, plain_environment

pytestmark = pytest.mark.jobs

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "roll_call.py"


def wall_s(num_nodes: int, limit_s: float) -> float:
    """What the benchmark measures; every node must have been healthy."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--nodes", str(num_nodes), "--limit-s", str(limit_s)],
        capture_output=True,
        text=True,
        env=plain_environment(),
        timeout=limit_s + 30,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "healthy" in done.stdout
    assert re.search(rf"^nodes +{num_nodes}\b.*exit codes \[0\]", done.stdout, re.MULTILINE), done.stdout
    found = re.search(r"^wall_s +([\d.]+)", done.stdout, re.MULTILINE)
    assert found is not None
    return float(found.group(1))


def test_twelve_nodes_meet() -> None:
    assert wall_s(12, 40.0) < 40.0  # 5 s; how long it takes is measured by the slow test


@pytest.mark.slow
def test_sixty_four_nodes_meet_within_twenty_seconds() -> None:
    assert wall_s(64, 100.0) < 20.0, "on a machine that does nothing else"


def test_of_seven_nodes_the_two_that_are_absent_are_named_everywhere(job: Job) -> None:
    job.num_nodes = 7
    nodes = [job.start(node, *ROLL, "--wait", "4") for node in range(7) if node not in {2, 5}]
    for node in nodes:
        assert node.wait(30) == 1, node.all_words()
        verdict = node.report["verdict"]
        assert (verdict["fault_class"], verdict["culprits"]["nodes"]) == ("START-ABSENT", [2, 5])


def test_workers_that_come_first_meet_a_node_0_that_comes_last(job: Job) -> None:
    job.num_nodes = 4
    nodes = [job.start(node, *ROLL) for node in range(1, 4)]
    nodes[-1].until_said("waiting for node 0")
    nodes.append(job.start(0, *ROLL))
    for node in nodes:
        assert node.wait(30) == 0, node.all_words()


def test_a_node_that_is_restarted_while_others_are_awaited_is_welcome(job: Job) -> None:
    job.num_nodes = 3
    first = job.start(0, *ROLL)
    dying = job.start(1, *ROLL)
    dying.until_said("joined")
    dying.process.kill()
    dying.wait(2)
    nodes = [first, job.start(1, *ROLL)]
    nodes[1].until_said("joined")
    nodes.append(job.start(2, *ROLL))
    for node in nodes:
        assert node.wait(20) == 0, node.all_words()
        assert node.report["roll"]["lost"] == []
