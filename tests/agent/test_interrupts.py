"""Ctrl-C, SIGTERM and a scheduler's signals on a job: the verdict of the moment before stays, on every node."""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.agent.jobs import LOOP, Job, Node, processes_with, wait_for
from tests.agent.test_live import rank_pid, verdict_of

SLEEPS = {"EACH_STEP": "if step == 30 and rank == 1: time.sleep(1000)"}
CONSEQUENCES = ("LIV007", "LIV012", "DTH", "GLO", "JOB")
"""What an end by a signal looks like afterwards: left early, terminated, dead, connection closed, node lost."""


def hung(job: Job, *, nodes: int = 1) -> list[Node]:
    """A job whose rank 1 sleeps in a step while rank 0 waits for it, and the report says so."""
    script = job.script(LOOP)
    if nodes == 1:
        found = [job.start("--nproc-per-node", "2", "--grace", "3", script, env=SLEEPS)]
    else:
        found = [job.node(n, "--grace", "3", script, env=SLEEPS) for n in range(nodes)]
    wait_for(lambda: says_sleep(found[0]), 60.0)
    return found


def says_sleep(node: Node) -> bool:
    """Not at once: that a rank is late is known before its stack and system call are."""
    verdict = verdict_of(node, "waiting")
    return verdict is not None and "sleeps" in verdict["sentence"]


def names_rank_1(node: Node, exit_code: int) -> dict[str, Any]:
    """The report of an interrupted job that hung: rank 1 sleeps, and nothing else."""
    report = node.report()
    verdict = report["verdict"]
    assert report["status"] in {"interrupted", "fault"}, report["status"]
    assert verdict is not None, node.err
    assert verdict["culprits"]["ranks"] == [1], verdict
    assert "sleep" in verdict["sentence"], verdict["sentence"]
    blamed = [f["code"] for f in report["findings"] if f["severity"] in {"error", "blocker"}]
    assert not [code for code in blamed if code.startswith(CONSEQUENCES)], blamed
    assert report["job"] == {"exit_code": exit_code, "outcome": "stopped", "attempts": 1}
    assert report["not_checked"][0]["code"] == "job"
    return report


def test_ctrl_c_keeps_the_explanation_of_a_hang(job: Job) -> None:
    [node] = hung(job)
    node.process.send_signal(signal.SIGINT)
    assert node.wait(20) == 130
    names_rank_1(node, 130)
    assert "interrupted; best explanation so far: rank 1" in node.err
    assert "resolved" not in node.err


@pytest.mark.parametrize("victim", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_signal_to_one_node_keeps_it_on_both(job: Job, victim: int) -> None:
    nodes = hung(job, nodes=2)
    nodes[victim].process.send_signal(signal.SIGTERM)
    assert [node.wait(20) for node in nodes] == [143, 143]
    reports = [names_rank_1(node, 143) for node in nodes]
    assert reports[0]["verdict"] == reports[1]["verdict"]


@pytest.mark.parametrize("ranks_first", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_scheduler_that_signals_every_process_keeps_it(job: Job, ranks_first: bool) -> None:
    nodes = hung(job, nodes=2)
    ranks = [rank_pid(str(job.folder / "train.py"), rank) for rank in (0, 1)]
    agents = [node.process.pid for node in nodes]
    for pid in (*ranks, *agents) if ranks_first else (*agents, *ranks):
        os.kill(pid, signal.SIGTERM)
    assert [node.wait(20) for node in nodes] == [143, 143]
    for node in nodes:
        names_rank_1(node, 143)


@pytest.mark.slow
def test_what_a_rank_does_because_of_the_signal_is_no_reason_of_the_hang(job: Job) -> None:
    """Its end waits for a thread, or for others as JAX does; the last look at the job falls into that."""
    leaves = "import threading; threading.Thread(target=time.sleep, args=(60,)).start(); time.sleep(1000)"
    nodes = [
        job.node(n, "--grace", "3", job.script(LOOP), env={"EACH_STEP": f"if step == 30 and rank == 1: {leaves}"})
        for n in (0, 1)
    ]
    wait_for(lambda: says_sleep(nodes[0]), 60.0)
    ranks = [rank_pid(str(job.folder / "train.py"), rank) for rank in (0, 1)]
    for pid in (*[node.process.pid for node in nodes], *ranks):
        os.kill(pid, signal.SIGINT)
    assert [node.wait(20) for node in nodes] == [130, 130]
    for node in nodes:
        names_rank_1(node, 130)


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_signal_to_the_ranks_accuses_none_of_them(rank: int, job: Job, tmp_path: Path) -> None:
    """One works for seconds in its handler, the other one has none and is gone at once; no agent got the signal."""
    works = "t = time.time()\n    while time.time() - t < 4: pass\n    sys.exit(143)"
    handles = f"def handler(*_):\n    {works}\nimport signal; signal.signal(signal.SIGTERM, handler)"
    touch = tmp_path / "runs"
    prepare = f"if step == 0 and rank == {rank}: exec({handles!r}, globals())"
    env = {"EACH_STEP": f"{prepare}\nif step == 60: open({str(touch)!r}, 'w').close()"}
    node = job.start("--nproc-per-node", "2", "--grace", "3", job.script(LOOP), env=env)
    wait_for(touch.exists, 60.0)
    for number in (0, 1):
        os.kill(rank_pid(str(job.folder / "train.py"), number), signal.SIGTERM)
    assert node.wait(30) == 143
    assert_only_interrupted([node])
    [why, *_] = node.report()["not_checked"]
    assert (why["kind"], why["values"]["signal"]) == ("ranks_signalled", "SIGTERM")
    assert node.report()["job"]["outcome"] == "killed"


@pytest.mark.slow
def test_a_hang_after_a_rank_left_in_its_handler_is_judged_and_ended(job: Job) -> None:
    """It alone got the signal and ended with exit code 0; the other one, which has a handler as well, waits for it."""
    works = "t = time.time()\n    while time.time() - t < 1: pass\n    os.fork() or time.sleep(30)\n    os._exit(0)"
    handles = f"def handler(*_):\n    {works}\nimport os, signal; signal.signal(signal.SIGTERM, handler)"
    each = f"if step == 0: exec({handles!r}, globals())\n"
    each += "if step == 30 and rank == 0: os.kill(os.getpid(), signal.SIGTERM)"
    flags = ("--nproc-per-node", "2", "--grace", "1", "--on-hang", "abort", "--hang-after", "3")
    node = job.start(*flags, job.script(LOOP), env={"EACH_STEP": each})
    assert node.wait(90) == 1
    report = node.report()
    verdict = report["verdict"]
    assert (report["status"], verdict["code"], verdict["culprits"]["ranks"]) == ("fault", "LIV012", [0])
    assert report["job"]["outcome"] == "hung"


@pytest.mark.slow
def test_what_a_rank_does_in_its_handler_does_not_explain_the_hang(job: Job) -> None:
    """Rank 1 sleeps in a step; both save for seconds when a signal comes that no agent gets."""
    works = "t = time.time()\n    while time.time() - t < 4: pass\n    sys.exit(143)"
    handles = f"def handler(*_):\n    {works}\nimport signal; signal.signal(signal.SIGTERM, handler)"
    each = f"if step == 0: exec({handles!r}, globals())\nif step == 30 and rank == 1: time.sleep(1000)"
    node = job.start("--nproc-per-node", "2", "--grace", "3", job.script(LOOP), env={"EACH_STEP": each})
    wait_for(lambda: verdict_of(node, "waiting"), 60.0)
    for rank in (0, 1):
        os.kill(rank_pid(str(job.folder / "train.py"), rank), signal.SIGTERM)
    assert node.wait(40) == 143
    report = node.report()
    assert (report["status"], report["verdict"]["culprits"]["ranks"]) == ("interrupted", [1])
    assert "sleep" in report["verdict"]["sentence"]
    assert "handler" not in report["verdict"]["sentence"]
    assert "resolved" not in node.err


@pytest.mark.slow
def test_a_second_ctrl_c_ends_it_sooner_and_keeps_it_as_well(job: Job) -> None:
    [node] = hung(job)
    node.process.send_signal(signal.SIGINT)
    node.process.send_signal(signal.SIGINT)
    assert node.wait(20) == 130
    names_rank_1(node, 130)


@pytest.mark.slow
def test_node_0_that_is_ended_at_once_leaves_the_explanation_on_the_other_node(job: Job) -> None:
    """Seen with four Ctrl-C: the loss of node 0, which node 1 knew to be ending the job, became its verdict."""
    nodes = hung(job, nodes=2)
    wait_for(lambda: verdict_of(nodes[1], "waiting"), 10.0)
    for _ in range(4):
        nodes[0].process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    assert nodes[0].wait(20) != 0
    assert nodes[1].wait(20) != 0
    assert names_rank_1(nodes[1], nodes[1].process.returncode)["status"] == "interrupted"


def test_a_healthy_job_that_is_interrupted_is_neither_healthy_nor_faulty(job: Job, tmp_path: Path) -> None:
    """Its report says how far it came."""
    touch = tmp_path / "runs"
    env = {"EACH_STEP": f"if step == 350: open({str(touch)!r}, 'w').close()"}
    nodes = [job.node(n, "--grace", "3", job.script(LOOP), env=env) for n in (0, 1)]
    wait_for(touch.exists, 90.0)
    nodes[0].process.send_signal(signal.SIGINT)
    assert [node.wait(20) for node in nodes] == [130, 130]
    assert_only_interrupted(nodes)
    for node in nodes:
        assert node.report()["course"]["num_iterations"] > 20
        assert "iterations seen" in node.err


@pytest.mark.slow
def test_a_proven_fault_stays_one(job: Job, tmp_path: Path) -> None:
    script, touch = job.script(LOOP), tmp_path / "runs"
    node = job.start("--nproc-per-node", "2", "--grace", "3", script, env={"TOUCH": str(touch)})
    wait_for(touch.exists, 60.0)
    os.kill(rank_pid(script, 1), signal.SIGSTOP)
    before = wait_for(lambda: verdict_of(node), 30.0)
    node.process.send_signal(signal.SIGTERM)
    assert node.wait(20) == 143
    report = node.report()
    assert (report["status"], report["verdict"]["code"]) == ("fault", before["code"])
    assert report["verdict"]["culprits"]["ranks"] == [1]


ENDS_SLOWLY = """
import atexit, os, time
rank = os.environ["RANK"]
if rank == "1":
    atexit.register(time.sleep, 60)
    try:
        raise ValueError("bad batch")
    finally:
        open(os.environ["TOUCH"], "w").close()
time.sleep(1000)
"""


def test_what_had_ended_a_script_stays_the_verdict_though_its_rank_is_still_ending(job: Job, tmp_path: Path) -> None:
    touch = tmp_path / "raises"
    arguments = ("--nproc-per-node", "2", "--grace", "1", job.script(ENDS_SLOWLY))
    node = job.start(*arguments, env={"TOUCH": str(touch)})
    wait_for(touch.exists, 60.0)
    node.process.send_signal(signal.SIGINT)
    assert node.wait(20) == 130
    report = node.report()
    assert (report["status"], report["job"]["outcome"]) == ("fault", "stopped")
    assert (report["verdict"]["code"], report["verdict"]["culprits"]["ranks"]) == ("DTH001", [1])
    assert "ValueError: bad batch" in report["verdict"]["sentence"]


def test_a_job_that_is_interrupted_before_all_nodes_came_says_who_is_missing(job: Job) -> None:
    node = job.node(0, job.script(LOOP))
    wait_for(lambda: verdict_of(node, "waiting"), 60.0)
    node.process.send_signal(signal.SIGINT)
    assert node.wait(20) == 130  # as where the job runs
    report = node.report()
    assert report["status"] != "healthy"
    assert (report["verdict"]["code"], report["verdict"]["culprits"]["nodes"]) == ("JOB001", [1])
    assert report["job"] == {"exit_code": 130, "outcome": "stopped", "attempts": 0}


def assert_only_interrupted(nodes: Sequence[Node]) -> None:
    for node in nodes:
        report = node.report()
        assert (report["status"], report["verdict"]) == ("interrupted", None), report["verdict"]
        assert not [f for f in report["findings"] if f["severity"] in {"error", "blocker"}], report["findings"]
        assert not processes_with(str(node.report_dir))
