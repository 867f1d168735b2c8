"""What is to be injected: read, refused, written down; and the hook that carries it into Python."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from allready.cli.main import main
from allready.errors import UsageError
from allready.lab.inject.commands import LabLayout, node_commands
from allready.lab.inject.kinds import KINDS
from allready.lab.inject.plan import HOOK, plan_of, python_path, usage
from allready.text.ui import ui
from tests.cases import cases

LAYOUT = LabLayout(num_nodes=2, nproc_per_node=2, master_addr="10.77.0.1")


def test_words_become_a_plan_that_the_ranks_can_read(tmp_path: Path) -> None:
    words = [
        ["kill", "rank=3", "step=20", "signal=SIGTERM"],
        ["link_down", "node=1", "step=7", "rank=2", "lasts_s=2"],
        ["oom", "rank=1", "limit_bytes=64M"],
        ["exception", "rank=0", "step=import", "module=jax"],
    ]
    plan = plan_of(words, seed=4)
    env = plan.write(tmp_path)
    written = json.loads(Path(env["ALLREADY_LAB_INJECT"]).read_text())
    kill, oom, at_import, mark = written["faults"]
    assert (kill["kind"], kill["rank"], kill["step"], kill["signal"], kill["layer"]) == (
        "kill",
        3,
        20,
        "TERM",
        "process",
    )
    assert oom["limit_bytes"] == 64 << 20
    assert (at_import["at"], at_import["module"]) == ("import", "jax")
    assert (mark["kind"], mark["rank"], mark["step"], mark["id"]) == ("mark", 2, 7, 2)
    assert plan.net_faults[0].lasts_s == 2.0
    assert written["seed"] == 4


@cases(
    ("words", "why"),
    [
        ("", "unknown fault ''; valid: sigstop"),
        ("sigstopp rank=1", "unknown fault 'sigstopp'"),
        ("kill", "rank is a number"),
        ("kill rank=all", "rank is a number"),
        ("kill rank=-1", "rank is a number"),
        ("kill rank=1 step=x", "step is a number from 0, or import"),
        ("kill rank=1 signal=NONE", "signal is one of KILL"),
        ("kill rank=1 rank=2", "write each parameter once"),
        ("kill rank=1 step", "as NAME=VALUE"),
        ("kill rank=1 colour=red", "has no parameter 'colour'"),
        ("slow rank=1", "give percent or ms"),
        ("slow rank=1 ms=-3", "makes no sense"),
        ("slow rank=1 ms=nan", "makes no sense"),
        ("slow rank=1 ms=soon", "ms is a number"),
        ("slow_loader rank=1", "it needs ms"),
        ("skip rank=1 step=import", "only what happens to the process"),
        ("exit rank=1 how=slowly", "how is one of orderly, at_once"),
        ("link_down node=1 step=no", "step is a number from 0"),
        ("link_down node=1 repeat=3", "repeat needs lasts_s"),
        ("link_down", "needs node"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_is_valid(words: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        plan_of([words.split()])


@cases("step_of", ["", "optimiser", "a b:c", "x:"])
def test_a_wrong_step_of_is_refused(step_of: str) -> None:
    with pytest.raises(UsageError, match="MODULE:FUNCTION"):
        plan_of([["kill", "rank=1"]], step_of=step_of)


def test_every_kind_has_a_text_a_usage_and_somebody_who_does_it() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); from allready_lab_inject import actions, calls, pace; "
    code += "print(*actions.ACTIONS, *calls.CHANGES, *pace.PACES)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(HOOK)], capture_output=True, text=True, timeout=30, check=True
    )
    able = set(done.stdout.split()) | {"skip", "swallow", "extra", "swap"}
    assert set(KINDS) <= able
    for kind in KINDS.values():
        assert ui(f"lab.kind_{kind.name}")
        assert usage(kind).startswith("rank=N")


def test_the_list_of_faults_shows_those_of_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "fault", "list", "--lang", "en"]) == 0
    out = capsys.readouterr().out
    assert "pulses  rank=N step=N [stop_ms=200] [period_ms=1000] [duration_s=0]" in out
    assert "allready lab run --fault KIND" in out


# --- commands


def test_launchers_get_the_flags_of_each_node_and_keep_their_own() -> None:
    first, second = node_commands(["torchrun", "--nproc-per-node=1", "train.py", "--nnodes", "9"], LAYOUT)
    flags = [word for word in second.argv if word.startswith("--")]
    assert flags == [
        "--nnodes=2",
        "--node-rank=1",
        "--master-addr=10.77.0.1",
        "--master-port=29500",
        "--nproc-per-node=1",
        "--nnodes",
    ]
    assert first.env == {}


@cases(
    "command",
    [["allready", "run", "x.py"], ["python", "-m", "torch.distributed.run", "x.py"],
     ["python", "-u", "-m", "allready", "run", "x.py"], ["python", "-m", "allready.run", "x.py"]],
)  # fmt: skip
def test_launchers_are_recognised(command: list[str]) -> None:
    for node in node_commands(command, LAYOUT):
        assert f"--node-rank={node.node}" in node.argv
        assert node.argv[-1] == "x.py"


def test_a_meeting_point_of_the_users_own_is_not_contradicted() -> None:
    [first, _] = node_commands(["torchrun", "--rdzv-endpoint", "node0:1234", "x.py"], LAYOUT)
    assert not any("master" in word for word in first.argv)


def test_a_plain_program_is_started_once_per_rank_with_its_environment() -> None:
    commands = node_commands(["python", "train.py"], LAYOUT)
    assert [c.env["RANK"] for c in commands] == ["0", "1", "2", "3"]
    assert [c.env["LOCAL_RANK"] for c in commands] == ["0", "1", "0", "1"]
    assert [c.node for c in commands] == [0, 0, 1, 1]
    assert commands[0].argv[0] == sys.executable


def test_no_command_and_no_such_program_are_refused() -> None:
    with pytest.raises(UsageError, match="no command"):
        node_commands([], LAYOUT)
    with pytest.raises(UsageError, match="no such program"):
        node_commands(["/no/such/program"], LAYOUT)


# --- the hook


def python(tmp_path: Path, code: str, **env: str) -> "subprocess.CompletedProcess[str]":
    own = {"PYTHONPATH": python_path(env.pop("AFTER", None)), **env}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=os.environ | own,
        cwd=tmp_path,
    )


def test_the_users_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    other = tmp_path / "site"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import sys\nsys.is_mine = __name__\n")
    done = python(tmp_path, "import sys; print(sys.is_mine)", AFTER=str(other))
    assert (done.stdout, done.stderr) == ("sitecustomize\n", "")


def test_without_one_and_without_a_plan_nothing_happens(tmp_path: Path) -> None:
    code = "import sys; print([m for m in sys.modules if 'allready_lab' in m])"
    assert python(tmp_path, code).stdout == "[]\n"


def test_a_rank_that_is_no_victim_loads_no_injector(tmp_path: Path) -> None:
    env = plan_of([["kill", "rank=1"]]).write(tmp_path / "truth")
    code = "import sys; print('allready_lab_inject.engine' in sys.modules)"
    assert python(tmp_path, code, RANK="0", **env).stdout == "False\n"
    assert python(tmp_path, code, RANK="1", **env).stdout == "True\n"


def test_children_of_a_rank_inherit_its_number_and_do_not_act(tmp_path: Path) -> None:
    env = plan_of([["kill", "rank=1"]]).write(tmp_path / "truth")
    inner = "import sys; print('allready_lab_inject.engine' in sys.modules)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}], check=True)"
    assert python(tmp_path, code, RANK="1", **env).stdout == "False\n"


def test_a_plan_that_cannot_be_read_is_told_and_does_not_break_the_job(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text("{")
    done = python(tmp_path, "print('still here')", RANK="1", ALLREADY_LAB_INJECT=str(plan))
    assert done.stdout == "still here\n"
    assert "the fault injector failed" in done.stderr
    assert len(list(tmp_path.glob("problem-*.txt"))) == 1


def test_steps_can_be_counted_as_calls_of_a_function_of_the_script(tmp_path: Path) -> None:
    env = plan_of([["exit", "rank=0", "step=3", "code=5"]], step_of="__main__:Trainer.step").write(tmp_path / "truth")
    (tmp_path / "train.py").write_text(
        "class Trainer:\n    def step(self, n):\n        print(n, flush=True)\n"
        "def step(n):\n    pass\nfor n in range(9):\n    step(n)\n    Trainer().step(n)\n"
    )
    code = "import runpy; runpy.run_path('train.py', run_name='__main__')"
    done = python(tmp_path, code, RANK="0", **env)
    assert (done.returncode, done.stdout.split()) == (5, ["0", "1", "2"])
    [truth] = [json.loads(path.read_text()) for path in (tmp_path / "truth").glob("fault-*.json")]
    assert (truth["step"], truth["rank"]) == (3, 0)


@pytest.mark.thorough
def test_a_fault_that_struck_an_earlier_attempt_does_not_come_again(tmp_path: Path) -> None:
    env = plan_of([["exit", "rank=0", "step=1", "code=5"]], step_of="__main__:step").write(tmp_path / "truth")
    code = "def step():\n    pass\nfor n in range(3):\n    step()\n"
    assert python(tmp_path, code, RANK="0", **env).returncode == 5
    assert python(tmp_path, code, RANK="0", **env).returncode == 0
