"""`allready run` starts jobs: one node and several, in any order, and ends as the job ends."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.agent.jobs import LOOP, PRINT_WHO, Job, lines, processes_with, wait_for
from tests.cli.patches import patched
from tests.clock import Stopwatch


def test_one_node_runs_a_script_unchanged(job: Job) -> None:
    node = job.start("--nproc-per-node", "2", job.script(PRINT_WHO))
    assert node.wait() == 0, node.err
    assert lines(node.out) == ["[rank0] rank 0 of 2 local 0", "[rank1] rank 1 of 2 local 1"]
    assert (node.report_dir / "attempt0/node0/rank1/out.log").read_text() == "rank 1 of 2 local 1\n"
    assert node.report()["status"] == "healthy"
    assert node.report()["command"] == "run"


def test_without_diagnosis_a_script_runs_as_well(job: Job) -> None:
    script = job.script(PRINT_WHO.replace("RANK", "JAX_PROCESS_ID", 1).replace("WORLD_SIZE", "JAX_NUM_PROCESSES"))
    node = job.start("--nproc-per-node", "2", "--no-diagnosis", "--framework", "jax", script)
    assert node.wait() == 0, node.err
    assert lines(node.out) == ["[rank0] rank 0 of 2 local 0", "[rank1] rank 1 of 2 local 1"]


def test_nodes_may_come_in_any_order_and_with_different_numbers_of_ranks(job: Job) -> None:
    script = job.script(PRINT_WHO)
    second = job.node(1, script, nproc=2)
    time.sleep(1.0)
    first = job.node(0, script, nproc=1)
    assert [second.wait(), first.wait()] == [0, 0], first.err + second.err
    assert lines(first.out) == ["[node0 rank0] rank 0 of 3 local 0"]
    assert lines(second.out) == ["[node1 rank1] rank 1 of 3 local 0", "[node1 rank2] rank 2 of 3 local 1"]


def test_nodes_without_a_rank_agree_on_one(job: Job) -> None:
    script = job.script(PRINT_WHO)
    common = (
        "--nnodes",
        "2",
        "--nproc-per-node",
        "1",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        f"127.0.0.1:{job.port}",
        script,
    )
    first = job.start(*common)
    second = job.start(*common)
    assert [first.wait(), second.wait()] == [0, 0], first.err + second.err
    assert lines(first.out + second.out) == ["[node0 rank0] rank 0 of 2 local 0", "[node1 rank1] rank 1 of 2 local 0"]


@pytest.mark.slow
def test_start_ranks_decide_the_order(job: Job) -> None:
    script = job.script(PRINT_WHO)
    first = job.node(0, "--start-rank", "1", script, nproc=1)
    second = job.node(1, "--start-rank", "0", script, nproc=1)
    assert [first.wait(), second.wait()] == [0, 0], first.err + second.err
    assert lines(first.out) == ["[node0 rank1] rank 1 of 2 local 0"]


def test_start_ranks_that_overlap_are_refused_with_both_parties(job: Job) -> None:
    script = job.script(PRINT_WHO)
    first = job.node(0, "--start-rank", "0", script, nproc=2)
    second = job.node(1, "--start-rank", "1", script, nproc=1)
    assert first.wait() == 2
    assert second.wait() == 2
    assert "ranks overlap: node 0" in first.err
    assert "node 1" in first.err


def test_the_exit_code_is_that_of_the_rank_that_failed_first(job: Job) -> None:
    script = job.script(
        "import os, sys, time\nif os.environ['RANK'] == '1':\n    time.sleep(0.3); sys.exit(7)\ntime.sleep(60)\n"
    )
    node = job.start("--nproc-per-node", "2", "--grace", "2", script)
    assert node.wait() == 7, node.err
    assert node.report()["verdict"]["culprits"]["ranks"] == [1]


def test_a_missing_node_is_named_and_the_job_does_not_start(job: Job) -> None:
    node = job.node(0, "--wait", "5", job.script(PRINT_WHO), nnodes=3)
    other = job.node(2, "--wait", "5", job.script(PRINT_WHO), nnodes=3)
    assert node.wait() == 1
    assert other.wait() == 1
    verdict = node.report()["verdict"]
    assert verdict["fault_class"] == "START-ABSENT"
    assert verdict["culprits"]["nodes"] == [1]
    assert "rank 0 of" not in node.out


@pytest.mark.slow
def test_a_node_0_that_gets_no_processor_for_a_while_is_waited_for(job: Job) -> None:
    """Seen at a load of 14: the kernel accepted connections in its place for eleven seconds."""
    script = job.script("pass")
    first = job.node(0, script)
    wait_for((first.report_dir / "report.json").exists, 30.0)
    first.process.send_signal(signal.SIGSTOP)
    second = job.node(1, script)
    wait_for(lambda: (second.report_dir / "report.json").exists(), 30.0)
    time.sleep(8.0)
    assert second.process.poll() is None
    first.process.send_signal(signal.SIGCONT)
    assert [node.wait(40) for node in (first, second)] == [0, 0]
    assert [node.report()["status"] for node in (first, second)] == ["healthy", "healthy"]


def test_sigterm_reaches_the_ranks_and_ends_the_job_everywhere(job: Job, tmp_path: Path) -> None:
    script = job.script(LOOP)
    touch = tmp_path / "runs"
    first = job.node(0, "--grace", "3", script, env={"TOUCH": str(touch)})
    second = job.node(1, "--grace", "3", script)
    wait_for(touch.exists)
    began = Stopwatch()
    second.process.send_signal(signal.SIGTERM)
    codes = {first.wait(20), second.wait(20)}
    assert began.s < 10
    assert codes == {143}, first.err + second.err
    assert first.report()["status"] != "fault", first.report()["verdict"]


def test_a_killed_agent_leaves_no_orphan(job: Job, tmp_path: Path) -> None:
    script = job.script("import os, time\nopen(os.environ['TOUCH'], 'w').close()\ntime.sleep(60)\n")
    touch = tmp_path / "runs"
    node = job.start("--nproc-per-node", "2", script, env={"TOUCH": str(touch)})
    wait_for(touch.exists)
    wait_for(lambda: len(processes_with(script)) >= 3)
    os.kill(node.process.pid, signal.SIGKILL)
    wait_for(lambda: not processes_with(script), 5.0)
    node.wait()


def test_a_node_whose_agent_is_killed_is_the_culprit(job: Job, tmp_path: Path) -> None:
    script = job.script(LOOP)
    touch = tmp_path / "steps"
    first = job.node(0, "--grace", "3", script, env={"TOUCH": str(touch)})
    second = job.node(1, "--grace", "3", script)
    wait_for(touch.exists, 60.0)
    os.kill(second.process.pid, signal.SIGKILL)
    assert first.wait() == 1
    report = first.report()
    assert report["status"] == "fault"
    assert report["verdict"]["culprits"]["nodes"] == [1], (report["verdict"], first.err)
    assert report["verdict"]["fault_class"] == "DEAD"
    second.wait()
    wait_for(lambda: second.report()["status"] != "healthy", 5.0)  # written by its log relay


@pytest.mark.parametrize("module", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_python_dash_m_works_as_torch_distributed_run_does(job: Job, module: bool) -> None:
    import subprocess
    import sys

    script = job.script(PRINT_WHO, "who.py")
    target = ["-m", "who"] if module else [script]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "allready.run",
            "--standalone",
            "--nproc_per_node=1",
            "--report-dir",
            str(job.folder / "r"),
            *target,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=job.folder,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "rank 0 of 1 local 0\n"


def test_a_script_that_one_node_lacks_is_told_at_the_roll_call(job: Job) -> None:
    first = job.node(0, job.script(PRINT_WHO))
    second = job.node(1, "nosuch.py")
    assert [first.wait(), second.wait()] == [1, 1]
    for node in (first, second):
        verdict = node.report()["verdict"]
        assert (verdict["code"], verdict["culprits"]["nodes"]) == ("JOB012", [1])
        assert "nosuch.py" in verdict["sentence"]
    assert "rank 0 of" not in first.out


def test_a_second_job_on_the_port_is_told_whose_it_is_and_the_first_goes_on(job: Job, tmp_path: Path) -> None:
    script = job.script("import os, time\nopen(os.environ['TOUCH'], 'w').close()\ntime.sleep(12)\n")
    touches = [tmp_path / f"runs{n}" for n in (0, 1)]
    running = [job.node(n, "--framework", "jax", script, env={"TOUCH": str(touches[n])}) for n in (0, 1)]
    wait_for(lambda: all(t.exists() for t in touches))
    second = [job.node(n, "--framework", "jax", script) for n in (0, 1)]
    assert [node.wait(20) for node in second] == [1, 1]
    for node in second:
        verdict = node.report()["verdict"]
        assert (verdict["code"], verdict["culprits"]["nodes"]) == ("PRT005", [0])
        assert f"pid {running[0].process.pid}, " in verdict["sentence"]
        assert " run --report-dir " in verdict["sentence"]
        assert "started=20" in verdict["sentence"]
    assert [node.wait() for node in running] == [0, 0]
    assert all("asyncio" not in node.err for node in running)


WITHOUT_TORCH = """
import importlib.util
genuine = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "torch" else genuine(name, package)
"""


def test_scripts_run_where_torch_is_not_installed_and_one_that_fails_is_not_healthy(job: Job, tmp_path: Path) -> None:
    script = job.script("import sys\nprint('ran')\nsys.exit(int(sys.argv[1]))\n")
    env = patched(tmp_path, WITHOUT_TORCH, where="run")
    nodes = [job.start("--nproc-per-node", "1", script, code, env=env) for code in ("0", "3")]
    assert [node.wait() for node in nodes] == [0, 3], nodes[0].err
    assert [node.out for node in nodes] == ["ran\n", "ran\n"]
    assert nodes[0].report()["status"] == "healthy"
    assert nodes[1].report()["status"] == "fault"


def test_how_the_job_ended_stands_in_the_report(job: Job) -> None:
    node = job.start("--nproc-per-node", "1", "--framework", "jax", job.script("raise SystemExit(5)"))
    assert node.wait() == 5
    report = node.report()
    assert report["job"] == {"exit_code": 5, "outcome": "exit_code", "attempts": 1}
    assert report["status"] != "healthy"


def test_an_excluded_node_takes_no_part(job: Job) -> None:
    import socket

    node = job.start(
        "--nproc-per-node", "1", "--exclude-nodes", f"elsewhere,{socket.gethostname()}", job.script(PRINT_WHO)
    )
    assert node.wait() == 0
    assert node.out == ""
    assert "takes no part" in node.err
