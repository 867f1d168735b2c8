"""Ctrl-C and SIGTERM at every stage, on node 0 and on a worker: a clear end on both sides, and nothing left."""

import signal
import time
from collections.abc import Callable

import pytest

from tests.cli.patches import HOLD_FACTS, HOLD_IMPORT, HOLD_REACH, patched
from tests.cli.processes import LONG_SWEEP, ROLL, Job, Node

Nodes = list[Node]


def roll_call(job: Job) -> Nodes:
    """Two of three nodes are here."""
    nodes = [job.start(node, *ROLL, "--wait", "5") for node in range(2)]
    for node in nodes:
        node.until_reported(lambda report: report["status"] == "waiting" and report["roll"] is not None)
    return nodes


def facts(job: Job) -> Nodes:
    job.num_nodes = 2
    nodes = job.start_all(*ROLL, env=patched(job.folder, HOLD_FACTS))
    nodes[1].until_said("", within_s=1)
    time.sleep(0.7)  # both have met by then, and collect for 8 s
    return nodes


def reach(job: Job) -> Nodes:
    job.num_nodes = 2
    nodes = [job.start(0), job.start(1, env=patched(job.folder, HOLD_REACH))]
    nodes[0].until_said("opening test ports")
    return nodes


def importing(job: Job) -> Nodes:
    job.num_nodes = 2
    nodes = job.start_all(env=patched(job.folder, HOLD_IMPORT, where="rank"))
    nodes[0].until_said("import: 0 of 2 ranks")
    assert len(job.ranks()) == 2
    return nodes


def sweep(job: Job) -> Nodes:
    job.num_nodes = 2
    nodes = job.start_all(*LONG_SWEEP)
    nodes[0].until_said("sweep:", within_s=60)
    return nodes


STAGES = {roll_call: "roll", facts: "facts", reach: "reach", importing: "collectives", sweep: "collectives"}


@pytest.mark.parametrize("victim", [0, 1], ids=["node0", "worker"])
@pytest.mark.parametrize("at", STAGES, ids=lambda at: at.__name__)
def test_an_interrupted_node_says_so_and_the_other_one_names_it(
    job3: Job, at: Callable[[Job], Nodes], victim: int
) -> None:
    nodes = at(job3)
    began = time.monotonic()
    nodes[victim].signal(signal.SIGINT)
    code = nodes[victim].wait(6.0)
    print(
        victim,
        "code",
        code,
        time.monotonic() - began,
        nodes[victim].all_words(),
        nodes[victim].report["verdict"],
        nodes[victim].report["status"],
        nodes[victim].report["not_checked"][:2],
    )
    other = nodes[1 - victim]
    code = other.wait(10)
    print(
        1 - victim,
        "code",
        code,
        time.monotonic() - began,
        other.all_words(),
        other.report["verdict"],
        other.report["not_checked"][:2],
    )
    job3.assert_nothing_left()
    assert 0
