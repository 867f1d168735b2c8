"""Ctrl-C and SIGTERM at every stage, on node 0 and on a worker: a clear end on both sides, and nothing left."""

import contextlib
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.patches import HOLD_EXIT, HOLD_FACTS, HOLD_IMPORT, HOLD_REACH, HOLD_REPORT, HOLD_START, patched
from tests.cli.processes import LONG_SWEEP, ROLL, Job, Node, eventually

Nodes = list[Node]


def roll_call(job: Job, victim: int) -> Nodes:
    """Two of three nodes are here."""
    job.num_nodes = 3
    nodes = [job.start(node, *ROLL, "--wait", "4") for node in range(2)]
    for node in nodes:
        node.until_reported(lambda report: report["status"] == "waiting" and report["roll"] is not None)
    return nodes


def facts(job: Job, victim: int) -> Nodes:
    """Both have met; the victim still collects."""
    holding = patched(job.folder, HOLD_FACTS)
    nodes = [job.start(node, *ROLL, env=holding if node == victim else None) for node in (0, 1)]
    nodes[1].until_said("joined node 0")
    nodes[0].until_said("waiting for the facts of node")
    return nodes


def reach(job: Job, victim: int) -> Nodes:
    holding = patched(job.folder, HOLD_REACH)
    nodes = [job.start(node, env=holding if node == victim else None) for node in (0, 1)]
    nodes[0].until_said("opening test ports")
    nodes[victim].until_said("held in reach")
    return nodes


def importing(job: Job, victim: int) -> Nodes:
    nodes = job.start_all(env=patched(job.folder, HOLD_IMPORT, where="rank"))
    nodes[0].until_said("import: 0 of 2 ranks")
    eventually(lambda: len(job.ranks()) == 2, within_s=10, what=nodes[0].all_words)
    return nodes


def sweep(job: Job, victim: int) -> Nodes:
    nodes = job.start_all(*LONG_SWEEP)
    nodes[0].until_said("sweep:", within_s=60)
    return nodes


At = Callable[[Job, int], Nodes]
STAGES: dict[At, str] = {
    roll_call: "roll",
    facts: "facts",
    reach: "reach",
    importing: "collectives",
    sweep: "collectives",
}


def said_by_itself(node: Node, signal_name: str, stage: str) -> None:
    """What an interrupted node must leave behind: one clear line, a whole report, and the right exit code."""
    code = node.wait(4.0)
    [line] = [line for line in node.errors.splitlines() if "interrupted" in line]
    assert f"interrupted by {signal_name} during stage {stage}" in line
    assert "Traceback" not in node.errors
    report = node.report
    assert report["not_checked"][0] == {
        "code": stage,
        "node": None,
        "why": f"interrupted by {signal_name} during stage {stage}",
        "kind": "interrupted",
        "values": {"signal": signal_name, "stage": stage},
        "phrases": {},
    }
    assert (report["status"], code) == (("fault", 1) if report["verdict"] else ("interrupted", 3))
    assert (node.folder / "report.html").exists()


def names_the_one_that_left(node: Node, victim: int, within_s: float) -> dict[str, Any]:
    assert node.wait(within_s) == 1
    assert "Traceback" not in node.errors
    report = node.report
    assert report["status"] == "fault"
    verdict = dict(report["verdict"])
    assert verdict["fault_class"] == "DEAD", verdict
    assert verdict["culprits"]["nodes"] == [victim]
    return verdict


QUICK = {(roll_call, 0), (facts, 1), (reach, 0), (importing, 1), (sweep, 1)}


@pytest.mark.parametrize(
    ("at", "victim"),
    [
        pytest.param(at, victim, id=f"{at.__name__}-{name}", marks=() if (at, victim) in QUICK else pytest.mark.slow)
        for at in STAGES
        for victim, name in enumerate(("node0", "worker"))
    ],
)
def test_an_interrupted_node_says_so_and_the_other_one_names_it(job: Job, at: At, victim: int) -> None:
    nodes = at(job, victim)
    number = signal.SIGINT if victim == 0 else signal.SIGTERM
    nodes[victim].signal(number)
    said_by_itself(nodes[victim], number.name, STAGES[at])
    verdict = names_the_one_that_left(nodes[1 - victim], victim, within_s=6.0)
    assert victim == 0 or verdict["sentence"].endswith("(interrupted on that node)")
    evidence = [e["text"] for f in nodes[1 - victim].report["findings"] for e in f["evidence"]]
    assert victim == 1 or any("node 0 was interrupted" in text for text in evidence), evidence
    job.assert_nothing_left()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "pause_s"), [(victim, pause_s) for victim in (0, 1) for pause_s in (0.0, 0.03, 0.08, 0.15, 0.25)]
)
def test_two_signals_at_once_still_end_cleanly(job: Job, victim: int, pause_s: float) -> None:
    nodes = sweep(job, victim)
    nodes[victim].signal(signal.SIGINT)
    time.sleep(pause_s)
    with contextlib.suppress(ProcessLookupError):
        nodes[victim].signal(signal.SIGINT)
    said_by_itself(nodes[victim], "SIGINT", "collectives")
    names_the_one_that_left(nodes[1 - victim], victim, within_s=6.0)


def test_a_whole_volley_of_signals_leaves_nothing_running(job: Job) -> None:
    nodes = sweep(job, 0)
    for _ in range(8):
        nodes[0].signal(signal.SIGINT)
        nodes[0].signal(signal.SIGTERM)
    assert nodes[0].wait(4.0) == 3
    assert "Traceback" not in nodes[0].errors
    names_the_one_that_left(nodes[1], 0, within_s=6.0)


def test_a_worker_that_never_met_node_0_is_interrupted_cleanly(job: Job) -> None:
    node = job.start(1, *ROLL)
    node.until_said("waiting for node 0")
    node.signal(signal.SIGINT)
    said_by_itself(node, "SIGINT", "roll")
    assert node.report["verdict"]["fault_class"] == "START-NAME", "127.0.0.1 is no other machine; this stood before"


def test_a_node_0_that_waits_for_its_port_is_interrupted_cleanly(job: Job) -> None:
    with socket.create_server(("127.0.0.1", job.port)):
        node = job.start(0, *ROLL)
        node.until_said("is in use")
        node.signal(signal.SIGTERM)
        said_by_itself(node, "SIGTERM", "roll")


@pytest.mark.slow
def test_one_machine_alone_is_interrupted_cleanly(job: Job) -> None:
    job.num_nodes = 1
    node = job.start(0, *LONG_SWEEP, "--nproc-per-node", "2")
    node.until_said("sweep:", within_s=60)
    assert len(job.ranks()) == 2
    node.signal(signal.SIGHUP)
    said_by_itself(node, "SIGHUP", "collectives")


def test_nohup_keeps_it_alive(job: Job) -> None:
    job.num_nodes = 3
    node = job.start(0, *ROLL, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    node.until_said("waiting for node")
    node.signal(signal.SIGHUP)
    node.signal(signal.SIGTERM)
    said_by_itself(node, "SIGTERM", "roll")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_check_has_begun_ends_it_with_a_word(job: Job, number: signal.Signals) -> None:
    node = job.start(0, *ROLL, env=patched(job.folder, HOLD_START))
    node.until_said("held at the start")
    node.signal(number)
    assert node.wait(4.0) == 3
    assert node.errors.splitlines()[-1] == "allready: interrupted"
    assert "Traceback" not in node.errors


def test_a_signal_while_the_report_is_written_does_not_cut_it_off(job: Job) -> None:
    job.num_nodes = 1
    node = job.start(0, *ROLL, env=patched(job.folder, HOLD_REPORT))
    node.until_said("held in the report")
    node.signal(signal.SIGINT)
    assert node.wait(6.0) == 0
    assert node.report["status"] == "healthy"
    assert "Traceback" not in node.errors


def test_a_signal_after_the_last_word_changes_no_exit_code(job: Job) -> None:
    job.num_nodes = 1
    node = job.start(0, *ROLL, env=patched(job.folder, HOLD_EXIT))
    node.until_said("held at the exit")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        node.signal(number)
    assert node.wait(6.0) == 0
    assert "Traceback" not in node.errors
