"""`allready lab run`: a command on every node, faults at a step, and always an end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from allready.cli.main import main
from tests.clock import Stopwatch

lab = pytest.mark.lab
STEPS = """
import os, sys, time
def step(number):
    time.sleep(0.05)
    print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "step", number, flush=True)
for number in range(int(sys.argv[1])):
    step(number)
"""


@pytest.fixture(autouse=True)
def own_labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Labs of this test only; none is left."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("ALLREADY_LANG", "en")
    yield
    assert list(tmp_path.glob("allready-lab")) == []


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(STEPS)
    return str(path)


def run(*words: str) -> int:
    return main(["lab", "run", "--step-of", "__main__:step", *words])


@lab
def test_a_rank_gets_its_fault_at_its_step_and_the_exit_code_is_the_jobs(
    script: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["--nproc-per-node", "1", "--out", str(out), "--fault", "kill", "rank=1", "step=3"]
    assert run(*words, "--", "python", script, "8") == 137
    seen = capfd.readouterr()
    assert "[rank1] rank 1 of 2 step 2" in seen.out
    assert "[rank1] rank 1 of 2 step 3" not in seen.out
    assert "[rank0] rank 0 of 2 step 7" in seen.out
    assert "fault 1 kill: rank 1, step 3, at " in seen.err
    assert json.loads((out / "fault-1.1.json").read_text())["step"] == 3


@lab
def test_a_fault_of_the_network_comes_at_a_step_and_goes(
    script: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    faults = [
        "--fault",
        "link_down",
        "node=1",
        "step=4",
        "rank=0",
        "lasts_s=0.3",
        "--fault",
        "exit",
        "rank=1",
        "step=99",
    ]
    assert run("--nproc-per-node", "1", "--out", str(out), *faults, "--", "python", script, "30") == 0
    seen = capfd.readouterr()
    assert "fault 1 link_down: network, step 4, at " in seen.err
    assert "fault 2 exit: rank 1: not injected: the rank ended in step 30, before it was due" in seen.err
    mark, done = (json.loads((out / f"fault-1.{who}.json").read_text()) for who in ("0", "driver"))
    assert 0 <= done["injected_s"] - mark["injected_s"] < 3


@lab
def test_what_never_ends_is_ended_at_the_timeout_with_all_it_started(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stubborn = tmp_path / "stubborn.py"
    marker = f"sleep 10{os.getpid()}"
    stubborn.write_text(
        "import os, signal, subprocess, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"subprocess.Popen({['setsid', *marker.split()]!r})\ntime.sleep(100)\n"
    )
    begun = Stopwatch()
    assert run("--nodes", "1", "--timeout", "2", "--grace", "1", "--", "python", str(stubborn)) == 124
    assert begun.s < 30
    assert "everything is ended (--timeout)" in capfd.readouterr().err
    assert not [p for p in Path("/proc").iterdir() if p.name.isdecimal() and marker in _command(p)]


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


@lab
def test_ctrl_c_reaches_the_ranks_and_leaves_nothing(script: str) -> None:
    argv = [sys.executable, "-m", "allready", "lab", "run", "--grace", "3", "--", "python", script, "1000"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "rank 3 of 4 step 1" in line:
                process.send_signal(signal.SIGINT)
                break
        process.stdout.read()
        assert process.wait(30) == 130


@lab
def test_a_program_that_cannot_start_and_a_rank_that_does_not_exist_leave_no_lab(
    script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--", "/no/such/program") == 2
    assert run("--fault", "kill", "rank=9", "--", "python", script, "1") == 2
    assert "no rank 9; there are 4" in capsys.readouterr().err
    assert run("--fault", "link_down", "node=7", "--", "python", script, "1") == 2


def test_without_a_command_the_usage_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--fault", "kill", "rank=1") == 2
    assert "no command was given; write: allready lab run" in capsys.readouterr().err


@lab
@pytest.mark.slow
def test_torchrun_on_two_nodes_meets_and_a_rank_of_it_is_stopped_for_a_while(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import time, torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "for step in range(10):\n    time.sleep(0.02)\n    dist.all_reduce(torch.ones(3))\n"
        "dist.barrier()\nprint('sum', dist.get_rank(), flush=True)\ndist.destroy_process_group()\n"
    )
    words = ["lab", "run", "--nproc-per-node", "1", "--fault", "sigstop", "rank=1", "step=4", "duration_s=1"]
    assert main([*words, "--", "torchrun", str(script)]) == 0
    seen = capfd.readouterr()
    assert "sum 1" in seen.out
    assert "fault 1 sigstop: rank 1, step 4" in seen.err
