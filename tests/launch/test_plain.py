"""Attempts without torch: the same ends, without a store."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from allready.launch.plan import AttemptResult
from allready.launch.request import RankCommand
from tests.clock import Stopwatch, until
from tests.launch.attempts_of_nodes import Nodes, has_succeeded, plan_of, plans_of, script
from tests.launch.processes import output

pytestmark = pytest.mark.jobs

SLEEPS = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"
TELL = """
    import json, os, sys
    with open(os.path.join(sys.argv[1], "env" + os.environ["RANK"]), "w") as file:
        json.dump(dict(os.environ), file)
"""


def run(folder: Path, code: str, **more: object) -> AttemptResult:
    with Nodes([plan_of(folder, script(folder, code), **more)], over_torch=False) as nodes:  # type: ignore[arg-type]
        return nodes.join()[0]


def test_ranks_know_who_they_are(tmp_path: Path) -> None:
    plans = plans_of(tmp_path, script(tmp_path, TELL), [1, 2], master_addr="10.0.0.1", rank_env={0: {"A": "b"}})
    with Nodes(plans, over_torch=False) as nodes:
        assert all(has_succeeded(r) for r in nodes.join().values())
    env = json.loads((tmp_path / "env2").read_text())
    assert [env[n] for n in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")] == [
        "2",
        "1",
        "3",
        "2",
        "1",
    ]
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("10.0.0.1", str(plans[0].store_port))
    assert json.loads((tmp_path / "env1").read_text())["A"] == "b"
    assert not any(name.startswith("TORCHELASTIC") for name in env)


def test_one_failure_ends_the_node_and_its_code_is_kept(tmp_path: Path) -> None:
    result = run(tmp_path, f"import os, sys\nif os.environ['RANK'] == '1': sys.exit(9)\n{SLEEPS}")
    assert result.ends[1].exit_code == 9
    assert result.ends[0].signal == "SIGTERM"
    assert result.ended_by_us == {0}


def test_stop_ends_all_within_the_grace(tmp_path: Path) -> None:
    code = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPS
    with Nodes([plan_of(tmp_path, script(tmp_path, code), grace_s=0.3)], over_torch=False) as nodes:
        until(lambda: all(b"up" in output(tmp_path, r) for r in range(2)), 60.0)
        begun = Stopwatch()
        nodes.stops[0].set()
        result = nodes.join()[0]
    assert begun.s < 10.0
    assert result.is_stopped
    assert {e.signal for e in result.ends.values()} == {"SIGKILL"}


def test_stop_before_the_start_starts_nothing(tmp_path: Path) -> None:
    nodes = Nodes([plan_of(tmp_path, script(tmp_path, SLEEPS))], over_torch=False)
    nodes.stops[0].set()
    with nodes:
        result = nodes.join()[0]
    assert (result.is_stopped, dict(result.pids)) == (True, {})


def test_a_program_that_is_not_there_is_called_that(tmp_path: Path) -> None:
    with Nodes([plan_of(tmp_path, RankCommand(target="no-such-program", is_program=True))], over_torch=False) as nodes:
        result = nodes.join()[0]
    assert (result.problem_kind, "no-such-program" in result.problem) == ("program", True)


def test_a_gpu_that_is_not_visible_is_told(tmp_path: Path) -> None:
    result = run(tmp_path, "", virtual_local_rank=True, env={"CUDA_VISIBLE_DEVICES": "3"})
    assert "has no GPU for local rank 1" in result.problem
    assert result.pids == {}


def test_there_is_time_to_look_before_living_ranks_are_ended(tmp_path: Path) -> None:
    seen: list[bool] = []

    def look(_: object) -> None:
        until(lambda: b"up" in output(tmp_path, 0))
        seen.append(True)

    code = f"import os, sys\nif os.environ['RANK'] == '1': sys.exit(9)\n{SLEEPS}"
    with Nodes([plan_of(tmp_path, script(tmp_path, code))], over_torch=False, before_stop=look) as nodes:
        nodes.join()
    assert seen == [True]
    with Nodes([plan_of(tmp_path, script(tmp_path, ""))], over_torch=False, before_stop=look) as nodes:
        nodes.join()
    assert seen == [True]


def test_torch_is_not_imported() -> None:
    code = "import sys, allready.launch.run_ranks, allready.launch.outcome; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("code", [0, 1, 255])
def test_exit_codes_are_kept(tmp_path: Path, code: int) -> None:
    assert {e.exit_code for e in run(tmp_path, f"raise SystemExit({code})").ends.values()} <= {code, None}
