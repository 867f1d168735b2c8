"""Real jobs under `allready run`, watched as a person or a script does."""

import json
import os
import shutil
import signal
import subprocess
import tarfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from allready.live.watch.attach import jobs
from allready.live.watch.find import found_jobs
from tests.agent.jobs import ALLREADY, LOOP, Job, wait_for
from tests.clock import Stopwatch
from tests.live.watch.terminal import Terminal

STEPS = {"STEPS": "4000"}


def watch(*arguments: str, cwd: Path, timeout_s: float = 30.0) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*ALLREADY, "watch", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        cwd=cwd,
        env={**os.environ, "ALLREADY_LANG": "en"},
        stdin=subprocess.DEVNULL,
    )


@contextmanager
def terminal(*arguments: str, cwd: Path, columns: int = 120, lines: int = 30) -> Iterator[Terminal]:
    one = Terminal(*arguments, cwd=cwd, columns=columns, lines=lines)
    try:
        yield one
    finally:
        one.close()


def test_both_nodes_show_all_ranks_and_a_script_gets_its_exit_code(job: Job, tmp_path: Path) -> None:
    script, touch = job.script(LOOP), tmp_path / "runs"
    nodes = [job.node(0, script, env={**STEPS, "TOUCH": str(touch)}), job.node(1, script, env=STEPS)]
    wait_for(touch.exists, 60.0)
    for node in nodes:
        done = watch(str(node.process.pid), "--once", "--json", "-", cwd=tmp_path)
        state = json.loads(done.stdout)
        assert [r["rank"] for s in state["statuses"] for r in s["ranks"]] == [0, 1]
        assert all(not s["pace"] for s in state["statuses"])
        assert (done.returncode, state["status"], state["notes"]) == (0, "healthy", [])
    # By the id: of two agents here that of node 0.
    assert json.loads(watch(job.job_id, "--once", "--json", "-", cwd=tmp_path).stdout)["job"]["node_rank"] == 0
    # A rank is not shown a second time as a process of its own.
    ours = {r["pid"] for s in state["statuses"] for r in s["ranks"]}
    assert not ours & {pid for found in found_jobs() for pid in found.job.pids}
    os.kill(next(r["pid"] for s in state["statuses"] for r in s["ranks"] if r["rank"] == 1), signal.SIGSTOP)
    try:
        fault = wait_for(lambda: d if (d := watch(job.job_id, "--once", cwd=tmp_path)).returncode == 1 else None, 25.0)
    finally:
        for node in nodes:
            os.kill(node.process.pid, signal.SIGTERM)
        for node in nodes:
            node.wait(40)
    assert "rank 1" in fault.stdout.splitlines()[1]
    assert "fix: " in fault.stdout


def test_the_full_screen_answers_keys_and_gives_the_terminal_back(job: Job, tmp_path: Path) -> None:
    script, touch = job.script(LOOP), tmp_path / "runs"
    node = job.start("--nproc-per-node", "2", script, env={**STEPS, "TOUCH": str(touch)})
    wait_for(touch.exists, 60.0)
    with terminal(job.job_id, cwd=tmp_path) as screen:
        assert "\x1b[?1049h" in screen.until("default_pg #")
        screen.type(b"s")
        screen.until("stacks and records: ")
        assert script in (node.report_dir / "attempt0/node0/rank0/evidence/stacks.txt").read_text()
        screen.type(b"\x1b[B\x1b[A")  # arrows are not Escape
        screen.type(b"?")
        screen.until("Enter        stack of the chosen rank")
        screen.type(b"q\r")  # back to the table, then the stack of the first rank
        seen = screen.until("j k scroll · q back")
        assert "rank 0" in seen
        assert Path(script).name in seen
        screen.type(b"q")
        screen.until("default_pg #")
        screen.type(b"b")
        screen.until("bundle: ")
        (archive,) = tmp_path.glob("allready-bundle-*.tar.gz")
        with tarfile.open(archive) as bundle:
            assert f"{node.report_dir.name}/attempt0/node0/rank0/evidence/stacks.txt" in bundle.getnames()
        screen.resize(40, 8)
        screen.until("rank  state ")  # there is no room for more
        assert screen.process.poll() is None
        screen.type(b"\x1a")  # Ctrl-Z would leave the shell with our screen
        screen.type(b"q")
        code, end = screen.end()
        assert code == 0
        assert end.endswith("\x1b[?25h\x1b[?1049l")
        assert screen.is_as_before()
    with terminal(job.job_id, cwd=tmp_path) as screen:
        screen.until("\x1b[?1049h")
        screen.type(b"\x03")
        code, end = screen.end()
        assert (code, "\x1b[?1049l" in end, screen.is_as_before()) == (0, True, True)
    with terminal(job.job_id, cwd=tmp_path) as screen:
        screen.until("\x1b[?1049h")
        os.kill(screen.process.pid, signal.SIGTERM)
        code, end = screen.end()
        assert ("\x1b[?1049l" in end, screen.is_as_before()) == (True, True)
    with terminal(job.job_id, "--lang", "zh", cwd=tmp_path) as screen:
        screen.until("周期")
        os.kill(node.process.pid, signal.SIGTERM)
        code, end = screen.end(30.0)
        assert code == 0
        assert "作业已结束" in end.partition("\x1b[?1049l")[2]
        assert screen.is_as_before()
    assert node.wait(20) == 143


def test_a_stopped_agent_is_said_and_waited_for_and_a_killed_one_is_over(job: Job, tmp_path: Path) -> None:
    script, touch = job.script(LOOP), tmp_path / "runs"
    node = job.start(script, env={**STEPS, "TOUCH": str(touch)})
    wait_for(touch.exists, 60.0)
    pid = node.process.pid
    with terminal(job.job_id, "--metrics-port", "0", "--every", "0.3", cwd=tmp_path) as screen:
        url = screen.until("/metrics").split("http://", 1)[1].split("/metrics")[0]
        screen.until("default_pg #")
        with urllib.request.urlopen(f"http://{url}/metrics", timeout=5) as answer:
            assert f'allready_up{{job_id="{job.job_id}"}} 1' in answer.read().decode()
        os.kill(pid, signal.SIGSTOP)
        try:
            began = Stopwatch()
            once = watch(job.job_id, "--once", cwd=tmp_path)
            assert began.s < 12.0
            assert (once.returncode, once.stdout) == (3, "")
            assert f"kill -CONT {pid}" in once.stderr
            screen.until("no update for")
            with urllib.request.urlopen(f"http://{url}/metrics", timeout=5) as answer:
                body = answer.read().decode()
            assert f'allready_up{{job_id="{job.job_id}"}} 0' in body
            assert "allready_rank" not in body
        finally:
            os.kill(pid, signal.SIGCONT)
        screen.until("default_pg #")
        (place,) = [one.place for one in jobs() if one.pid == pid]
        os.kill(pid, signal.SIGKILL)
        node.wait(10)
        code, end = screen.end(20.0)
        assert (code, "the job is over" in end) == (0, True)
    # Whatever it left behind is not taken for a job.
    assert pid not in {one.pid for one in jobs()}
    assert watch(job.job_id, "--once", cwd=tmp_path).returncode == 2
    shutil.rmtree(place, ignore_errors=True)


@pytest.mark.slow
def test_plain_lines_without_a_terminal_end_with_the_job(job: Job, tmp_path: Path) -> None:
    script, touch = job.script(LOOP), tmp_path / "runs"
    node = job.start(script, env={**STEPS, "TOUCH": str(touch)})
    wait_for(touch.exists, 60.0)
    with subprocess.Popen(
        [*ALLREADY, "watch", job.job_id, "--every", "0.2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=tmp_path,
    ) as view:
        assert view.stdout is not None
        assert job.job_id in view.stdout.readline()
        os.kill(node.process.pid, signal.SIGTERM)
        out, err = view.communicate(timeout=30)
    assert view.returncode == 0
    assert "\x1b" not in out
    assert "the job is over" in err
    assert node.wait(20) == 143


@pytest.mark.slow
def test_without_diagnosis_there_are_still_processes(job: Job, tmp_path: Path) -> None:
    script, touch = job.script(LOOP), tmp_path / "runs"
    node = job.start("--no-diagnosis", script, env={**STEPS, "TOUCH": str(touch)})
    wait_for(touch.exists, 60.0)
    done = watch(job.job_id, "--once", "--json", "-", cwd=tmp_path)
    state: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == 3
    assert len(state["statuses"][0]["ranks"]) == 1
    assert state["notes"] == ["started with --no-diagnosis: processes and sockets, but no operations and no verdict"]
    os.kill(node.process.pid, signal.SIGTERM)
    assert node.wait(20) == 143
