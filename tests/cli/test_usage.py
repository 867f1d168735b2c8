"""What a wrong command line says, and that it costs exit code 2, before anything was opened or started."""

import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from allready.cli.main import main
from allready.text import usage
from tests.cases import cases
from tests.cli.processes import PROGRAM, Job, plain_environment
from tests.clock import Stopwatch

MEET = ("--nnodes", "2", "--node-rank", "1", "--master-addr", "gpu01", "--nproc-per-node", "1")


@pytest.fixture(autouse=True)
def _no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ.keys() - plain_environment().keys():
        monkeypatch.delenv(name)


def ended(*words: str) -> int:
    """The exit code of `allready WORDS`, run in this process."""
    try:
        return main(words)
    except SystemExit as end:
        return int(str(end.code))


WRONG: list[tuple[tuple[str, ...], str]] = [
    (("doctr",), "no command 'doctr'; valid: doctor"),
    (("check", "--no-such-flag"), "--no-such-flag"),
    (("check", "--nnodes", "two"), "two"),
    (("check", "--nnodes", "2:4"), "one number of nodes"),
    (("check", "--nnodes", "-1"), "-1"),
    (("check", "--nnodes", "0"), "--nnodes 0"),
    (("check", "--nnodes", "1000000000", *MEET[2:]), "--nnodes 1000000000"),
    (("check", "--nnodes", "2"), "--node-rank 0 on node 0"),
    (("check", "--nnodes", "2", "--node-rank", "0"), "the address of node 0 is missing"),
    (("check", "--nnodes", "2", "--node-rank", "2", "--master-addr", "a"), "node rank 2"),
    (("check", "--nnodes", "2", "--node-rank", "-1", "--master-addr", "a"), "node rank -1"),
    (("check", *MEET, "--node-rank", "one"), "one"),
    (("check", *MEET, "--nproc-per-node", "many"), "'many': give a number, or gpu, cpu or auto"),
    (("check", *MEET, "--nproc-per-node", "0"), "--nproc-per-node 0"),
    (("check", *MEET, "--nproc-per-node", "1000000"), "--nproc-per-node 1000000"),
    (("check", *MEET, "--master-port", "0"), "--master-port 0"),
    (("check", *MEET, "--master-port", "65536"), "--master-port 65536"),
    (("check", *MEET, "--master-port", "http"), "http"),
    (("check", "--nnodes", "2", "--node-rank", "1", "--rdzv-endpoint", "gpu01:http"), "write HOST:PORT"),
    (("check", *MEET, "--devices", "0,1"), "--devices names 2 devices, --nproc-per-node is 1"),
    (("check", "--stages", "roll,facs"), "facs is not a stage; there are roll, facts"),
    (("check", "--stages", ","), "is not a stage"),
    (("check", "--stages", ""), "is not a stage"),
    (("check", "--wait", "0"), "not a positive number of seconds"),
    (("check", "--wait", "soon"), "not a positive number of seconds"),
    (("check", "--wait", "nan"), "not a positive number of seconds"),
    (("check", "--stage-timeout", "-3"), "not a positive number of seconds"),
    (("check", "--port-range", "5-1"), "is not a range of ports"),
    (("check", "--port-range", "0-10"), "is not a range of ports"),
    (("check", "--port-range", "1-99999"), "is not a range of ports"),
    (("check", "--min-bytes", "big"), "is not a size"),
    (("check", "--min-bytes", "2M", "--max-bytes", "1M"), "--min-bytes 2097152 is above --max-bytes 1048576"),
    (("check", "--min-bytes", "0"), "--min-bytes 0: at least 4"),
    (("check", "--max-bytes", "3"), "--max-bytes 3: at least 4"),
    (("check", "--iters", "0"), "not a whole number from 1"),
    (("check", "--warmup", "x"), "not a whole number from 1"),
    (("check", "--backend", "mpi"), "mpi"),
    (("check", "--framework", "tensorflow"), "tensorflow"),
    (("check", "--lang", "de"), "de"),
    (("check", "--json", "/no/such/folder/report.json"), "is not a folder that can be written to"),
    (("check", "--html", "/no/such/folder/report.html"), "is not a folder that can be written to"),
    (("check", "--json", "/"), "--json /: this is a folder"),
    (("check", "--html", "-"), "--html -: give a file"),
    (("check", "--report-dir", "/dev/null/x"), "--report-dir /dev/null/x: Not a directory"),
    (("check", "--report-dir", "/proc/self/nothing"), "--report-dir /proc/self/nothing"),
    (("check", "--nod", "1"), "--nod"),
    (("check", "--master", "gpu01"), "--master"),
]


@cases(("words", "said"), WRONG, ids=lambda value: " ".join(value) if isinstance(value, tuple) else "")
def test_a_wrong_command_line_is_exit_code_2_with_what_is_wrong(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(*words) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert out == ""
    assert "Traceback" not in err
    assert err.startswith(("allready", "usage: allready check"))


def test_a_variable_of_a_scheduler_that_makes_no_sense_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for environment, said in (
        ({"SLURM_JOB_ID": "7", "SLURM_NODEID": "one"}, "SLURM_NODEID='one' is not a number"),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "x"}, "OMPI_COMM_WORLD_SIZE='x' is not a number"),
        ({"PET_NNODES": "1:4", "PET_NODE_RANK": "0"}, "PET_NNODES=1:4 is a range"),
        ({"JOB_COMPLETION_INDEX": "0"}, "add --nnodes"),
        ({"SLURM_JOB_ID": "7", "SLURM_NODEID": "0", "SLURM_NNODES": "2", "SLURM_NODELIST": "[["}, "Slurm node list"),
        ({"SLURM_JOB_ID": "7", "SLURM_NODEID": "3", "SLURM_TASKS_PER_NODE": "2(x2)"}, "this is node 3"),
        ({"MASTER_ADDR": "gpu01", "NNODES": "2", "NODE_RANK": "0", "MASTER_PORT": "29500x"}, "MASTER_PORT='29500x'"),
        ({"MASTER_ADDR": "gpu01", "NNODES": "2", "NODE_RANK": "5"}, "node rank 5 (from NODE_RANK)"),
    ):
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            assert ended("check") == 2, environment
        assert said in capsys.readouterr().err


def test_no_command_shows_the_usage_and_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended() == 2
    assert "usage: allready COMMAND" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["--help", "-h", "--help-all", "help"])
def test_help_lists_the_commands_and_the_exit_codes(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(word) == 0
    out = capsys.readouterr().out
    for expected in ("check", "lab", "0 healthy, 1 fault, 2 usage, 3 something", "70"):
        assert expected in out


@pytest.mark.parametrize("words", [("check", "--help"), ("help", "check")])
def test_help_of_check_lists_every_option(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(*words) == 0
    out = capsys.readouterr().out
    for option in (
        "--nnodes",
        "--node-rank",
        "--nproc-per-node",
        "--master-addr",
        "--master-port",
        "--rdzv-endpoint",
        "--job-id",
        "--devices",
        "--backend",
        "--framework",
        "--wait",
        "--stages",
        "--port-range",
        "--min-bytes",
        "--max-bytes",
        "--iters",
        "--warmup",
        "--quick",
        "--isolate",
        "--grow",
        "--stage-timeout",
        "--json",
        "--html",
        "--report-dir",
        "--lang",
        "--verbose",
        "--quiet",
        "-- SCRIPT",
        "srun allready check",
    ):
        assert option in out, option


def test_help_of_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "diagnos"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "no command 'diagnos'" in err
    assert "did you mean diagnose?" in err
    assert ended("env", "lint", "--strickt") == 2
    assert "did you mean --strict?" in capsys.readouterr().err
    assert main(["help", "nonsense"]) == 2
    assert "did you mean" not in capsys.readouterr().err


def test_help_answers_at_once() -> None:
    ratios = []
    for _ in range(5):
        empty = Stopwatch()
        subprocess.run([sys.executable, "-c", "pass"], env=plain_environment(), check=True)
        empty_s = empty.wall_s
        help_ = Stopwatch()
        done = subprocess.run([*PROGRAM, "--help"], capture_output=True, env=plain_environment(), check=True)
        ratios.append(help_.wall_s / empty_s)
        assert b"usage: allready" in done.stdout
    assert statistics.median(ratios) < 8, "2 on a quiet machine: no heavy module is loaded for it"


@pytest.mark.thorough
def test_the_console_script_and_the_module_are_the_same_program() -> None:
    script = Path(sys.executable).with_name("allready")
    if not script.exists():
        pytest.skip("the package is not installed")
    for words in (("--version",), ("--help",), ("check", "--help"), ("nothing",)):
        one, other = (
            subprocess.run([*program, *words], capture_output=True, env=plain_environment(), check=False)
            for program in ((str(script),), PROGRAM)
        )
        assert (one.returncode, one.stdout, one.stderr) == (other.returncode, other.stdout, other.stderr)


SPELLINGS = [
    ("--nnodes=2", "--node-rank={node}", "--nproc-per-node=1", "--master-addr=127.0.0.1", "--master-port={port}"),
    ("--nnodes=2:2", "--node_rank={node}", "--nproc_per_node=1", "--master_addr=127.0.0.1", "--master_port={port}"),
    ("--nnodes", "2", "--node_rank", "{node}", "--nproc_per_node", "1", "--rdzv-endpoint", "127.0.0.1:{port}"),
    ("--nnodes", "2", "--node-rank={node}", "--nproc-per-node", "cpu", "--rdzv_endpoint=127.0.0.1:{port}",
     "--rdzv_backend=c10d", "--rdzv_id=7"),
]  # fmt: skip


def test_torchruns_spellings_are_understood_and_nodes_may_mix_them(job: Job) -> None:
    for first, second in ((0, 1), (2, 3)):
        nodes = []
        for node, spelling in enumerate((first, second)):
            words = [word.format(node=node, port=job.port) for word in SPELLINGS[spelling]]
            extra = () if spelling == 3 else ("--rdzv-id", "7")
            argv = [*PROGRAM, "check", *words, *extra, "--stages", "roll,facts", "-q"]
            nodes.append(job.start(node, argv=argv))
        for started in nodes:
            assert started.wait(15) == 0, started.all_words()


def test_what_is_wrong_with_a_value_is_told_in_the_chosen_language(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "_language", usage._language)  # that of this process, after the test
    for flag, value, said in (("--nnodes", "abc", "不是节点数；写 4"), ("--nproc-per-node", "x", "请给出从 1 起的数")):
        assert ended("run", "--lang", "zh", flag, value, "x.py") == 2
        assert said in capsys.readouterr().err
