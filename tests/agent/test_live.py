"""A job under `allready run` that goes wrong: the rank or node at fault, the cause, and what happens then."""

import json
import os
import re
import signal
import socket
import subprocess
import tarfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.agent.jobs import ALLREADY, LOOP, Job, Node, processes_with, wait_for
from tests.cli.patches import patched
from tests.clock import Stopwatch

FIXTURES = Path(__file__).parents[1] / "fixtures"


def verdict_of(node: Node, status: str = "fault") -> dict[str, Any] | None:
    """The verdict that stands, once the report has this status."""
    try:
        report = node.report()
    except (OSError, ValueError):
        return None
    found: dict[str, Any] | None = report["verdict"] if report["status"] == status else None
    return found


def rank_pid(script: str, rank: int) -> int:
    """The process of a rank."""
    for pid in processes_with(script):
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"RANK={rank}".encode() in environ:
            return pid
    raise AssertionError(f"rank {rank} does not run")


def test_a_stopped_rank_is_named_within_seconds_and_forgiven_when_it_goes_on(job: Job, tmp_path: Path) -> None:
    script, touch = job.script(LOOP), tmp_path / "runs"
    first = job.node(0, script, nproc=1, env={"TOUCH": str(touch), "STEPS": "350"})
    second = job.node(1, script, nproc=1, env={"STEPS": "350"})
    wait_for(touch.exists)
    pid = rank_pid(script, 1)
    began = Stopwatch()
    os.kill(pid, signal.SIGSTOP)
    verdict = wait_for(lambda: verdict_of(first), 12.0)
    assert began.s < 8.0
    assert (verdict["fault_class"], verdict["culprits"]["ranks"]) == ("CPU-STUCK", [1])
    assert str(pid) in verdict["sentence"]
    wait_for(lambda: verdict_of(second), 5.0)  # every node's report says so
    os.kill(pid, signal.SIGCONT)
    wait_for(lambda: first.report()["status"] == "healthy", 15.0)
    assert any("went on by itself" in note for note in first.report()["notes"])
    assert [first.wait(60), second.wait(60)] == [0, 0]
    assert first.report()["status"] == "healthy"


LAST_WORDS = """
import os, pathlib, sys, time
lines = pathlib.Path(sys.argv[1]).read_text().splitlines(keepends=True)
time.sleep(1)
sys.stderr.write("".join(line for line in lines if line.startswith(f"[rank{os.environ['RANK']}]:")))
sys.exit(1)
"""


@pytest.mark.parametrize(
    ("recorded", "output", "code", "fault_class"),
    [
        ("runs/shm_tiny.tar.xz", "shm_tiny/stdout.node0.log", "NLG026", "ENV-LIMIT"),
        pytest.param("h200/ruins/same_gpu.tar.xz", "out.log", "NLG038", "ENV-MISMATCH", marks=pytest.mark.slow),
    ],
)
def test_what_ranks_wrote_when_nccl_failed_at_the_start_is_the_verdict(
    job: Job, tmp_path: Path, recorded: str, output: str, code: str, fault_class: str
) -> None:
    """The lines that both ranks of a recorded job wrote before they ended."""
    with tarfile.open(FIXTURES / recorded) as tar:
        tar.extractall(tmp_path / "recorded", filter="data")
    node = job.start("--nproc-per-node", "2", job.script(LAST_WORDS), str(tmp_path / "recorded" / output))
    assert node.wait(60) == 1
    verdict = node.report()["verdict"]
    assert (verdict["code"], verdict["fault_class"]) == (code, fault_class)


def test_the_first_exception_is_the_cause_and_the_victims_are_not(job: Job) -> None:
    script = job.script(LOOP)
    env = {"EACH_STEP": "if step == 30 and rank == 2: raise ValueError('bad sample in shard 17')"}
    first = job.node(0, "--grace", "3", script, nproc=2, env=env)
    second = job.node(1, "--grace", "3", script, nproc=1, env=env)
    assert [first.wait(90), second.wait(90)] == [1, 1], first.err
    verdict = first.report()["verdict"]
    assert (verdict["fault_class"], verdict["culprits"]["ranks"]) == ("DEAD", [2])
    assert "ValueError: bad sample in shard 17" in verdict["sentence"]
    assert (first.report_dir / "report.html").stat().st_size > 1000


RECORDS_QUESTIONS = """
import allready.live.node.observer as observer
genuine = observer.NodeObserver.gather
def gather(self, number, *, with_dump=True, **others):
    with open(os.environ["QUESTIONS"], "a") as file:
        file.write(f"{self._node_rank} {number} {with_dump}\\n")
    return genuine(self, number, with_dump=with_dump, **others)
observer.NodeObserver.gather = gather
"""


@pytest.mark.slow
def test_the_first_question_about_a_wait_asks_no_node_for_a_dump(job: Job, tmp_path: Path) -> None:
    questions = tmp_path / "questions"
    env = {
        "EACH_STEP": "if step == 30 and rank == 1: time.sleep(1000)",
        "QUESTIONS": str(questions),
        **patched(tmp_path, RECORDS_QUESTIONS, where="run"),
    }
    nodes = [job.node(n, "--grace", "1", job.script(LOOP), env=env) for n in (0, 1)]

    def asked() -> dict[str, list[str]]:
        words = [line.split() for line in questions.read_text().splitlines()] if questions.exists() else []
        return {node: [dump for n, _, dump in words if n == node] for node in ("0", "1")}

    wait_for(lambda: all(len(dumps) >= 2 for dumps in asked().values()), 60.0)
    assert {node: dumps[:2] for node, dumps in asked().items()} == {"0": ["False", "True"], "1": ["False", "True"]}
    nodes[0].process.send_signal(signal.SIGTERM)
    for node in nodes:
        node.wait(20)


def test_watch_shows_a_job_and_on_hang_abort_ends_it_with_evidence_kept(job: Job, tmp_path: Path) -> None:
    script, touch = job.script(LOOP), tmp_path / "runs"
    node = job.start("--nproc-per-node", "2", "--on-hang", "abort", "--grace", "2", script, env={"TOUCH": str(touch)})
    wait_for(touch.exists)
    is_shown_by_watch(job, node)
    os.kill(rank_pid(script, 1), signal.SIGSTOP)
    assert node.wait(25) != 0
    assert node.report()["verdict"]["culprits"]["ranks"] == [1]
    stacks = list(node.report_dir.glob("attempt0/node0/rank0/evidence/stacks.txt"))
    assert stacks
    assert "all_reduce" in stacks[0].read_text()


def test_a_job_that_slurm_ends_says_why(job: Job, tmp_path: Path) -> None:
    scontrol = tmp_path / "bin" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text("#!/bin/sh\necho JobState=COMPLETING Reason=TimeLimit TimeLimit=00:20:00\n")
    scontrol.chmod(0o755)
    step = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_NODEID": "0", "SLURM_STEP_NUM_NODES": "1"}
    path = f"{scontrol.parent}:{os.environ['PATH']}"
    touch = tmp_path / "runs"
    node = job.start("--nproc-per-node", "1", job.script(LOOP), env={**step, "PATH": path, "TOUCH": str(touch)})
    wait_for(touch.exists)
    node.process.send_signal(signal.SIGTERM)
    assert node.wait(40) != 0
    report = node.report()
    assert report["job"]["ended_by"] == {"scheduler": "slurm", "cause": "time limit", "time_limit": "00:20:00"}
    assert report["status"] == "interrupted"
    assert "its time limit (00:20:00) was reached" in node.err


def metrics_of(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        body: bytes = answer.read()
    return body.decode()


def test_node_0_serves_metrics_of_all_nodes_and_names_the_culprit(job: Job, tmp_path: Path) -> None:
    script, touch = job.script(LOOP), tmp_path / "runs"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}/metrics"
    env = {"TOUCH": str(touch)}
    nodes = [job.node(n, "--metrics-port", str(port), script, env=env if n == 0 else {}) for n in (0, 1)]
    wait_for(touch.exists)
    wait_for(lambda: 'node="1",rank="1"} ' in metrics_of(url), 15.0)
    pid = rank_pid(script, 1)
    os.kill(pid, signal.SIGSTOP)
    body = wait_for(lambda: text if "allready_culprit{" in (text := metrics_of(url)) else "", 15.0)
    (fault,) = re.findall(r"^allready_fault\{(.*)\} 1$", body, re.MULTILINE)
    assert f'job_id="{job.job_id}"' in fault
    assert 'class="CPU-STUCK"' in fault
    assert 'nodes="1",ranks="1"' in fault
    assert re.search(r'^allready_culprit\{.*node="1",rank="1"\} 1$', body, re.MULTILINE)
    os.kill(pid, signal.SIGCONT)
    wait_for(lambda: "allready_culprit{" not in metrics_of(url), 15.0)
    for node in nodes:
        node.process.send_signal(signal.SIGTERM)
    for node in nodes:
        node.wait(20)
    assert f"metrics at {url}" in nodes[0].err
    assert "metrics at" not in nodes[1].err  # one place to ask for the whole job
    with pytest.raises(urllib.error.URLError):
        metrics_of(url)


@pytest.mark.slow
def test_a_metrics_port_that_is_taken_does_not_stop_the_job(job: Job) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        node = job.start("--nproc-per-node", "1", "--metrics-port", str(port), job.script(LOOP), env={"STEPS": "20"})
        assert node.wait(60) == 0
    assert f"port {port}: Address already in use; the job goes on without them" in node.err


@pytest.mark.slow
def test_on_hang_restart_tries_again(job: Job, tmp_path: Path) -> None:
    marker = tmp_path / "once"
    script = job.script(LOOP)
    stop_once = (
        f"import signal\nif step == 30 and rank == 1 and not os.path.exists({str(marker)!r}):\n"
        f"    open({str(marker)!r}, 'w').close(); os.kill(os.getpid(), signal.SIGSTOP)"
    )
    node = job.start(
        "--nproc-per-node",
        "2",
        "--on-hang",
        "restart",
        "--max-restarts",
        "2",
        "--backoff",
        "0.1,1,0",
        "--grace",
        "2",
        script,
        env={"EACH_STEP": stop_once, "STEPS": "60"},
    )
    assert node.wait(60) == 0, node.err
    record = [json.loads(line) for line in (node.report_dir / "attempts.jsonl").read_text().splitlines()]
    assert [attempt["outcome"] for attempt in record] == ["hung", "success"]
    assert (node.report_dir / "attempt1/node0/rank1/out.log").read_text().endswith("through 1\n")


def is_shown_by_watch(job: Job, node: Node) -> None:
    """A command in another terminal sees the job and its operations."""

    def look() -> dict[str, Any] | None:
        done = subprocess.run(
            [*ALLREADY, "watch", job.job_id, "--once", "--json", "-"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        if not done.stdout:
            return None  # not there yet, or just too busy to answer
        state: dict[str, Any] = json.loads(done.stdout)
        ranks = [r for s in state["statuses"] for r in s["ranks"]]
        return state if len(ranks) == 2 and all(r["num_operations"] > 0 for r in ranks) else None

    state = wait_for(look, 20.0)
    assert state["job"]["pid"] == node.process.pid
    assert state["status"] == "healthy"
    assert {r["phase"] for s in state["statuses"] for r in s["ranks"]} <= {"communicating", "computing", "unknown"}
